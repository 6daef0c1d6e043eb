// Messages by the official SDK; see tests/e2e/test_sdk.py.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ apiKey: "sk-nobody", maxRetries: 0 });
const messages = [{ role: "user", content: "List the files" }];
const input_schema = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ name: "bash", description: "Execute a bash command", input_schema }];

async function create(stream, more) {
  const asked = { model: "claude-opus-5", max_tokens: 64, ...more };
  return stream ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
}

function told(reply) {
  const blocks = (type) => reply.content.filter((block) => block.type === type);
  return {
    text: blocks("text").map((block) => block.text).join(""),
    reasoning: blocks("thinking").map((block) => block.thinking).join(""),
    calls: blocks("tool_use").map((block) => [block.id, block.name, JSON.stringify(block.input)]),
    finish: [reply.stop_reason, reply.stop_sequence].filter(Boolean),
    prompt: reply.usage.input_tokens + (reply.usage.cache_read_input_tokens ?? 0),
    completion: reply.usage.output_tokens,
  };
}

const ask = async (stream, more) => told(await create(stream, { messages, ...more }));

async function plain() {
  const calls = [];
  for (const stream of [false, true]) for (const more of [{}, { tools }]) calls.push(await ask(stream, more));
  calls.push(await ask(false, { tools, tool_choice: { type: "any", disable_parallel_tool_use: true } }));
  calls.push(await ask(false, { output_config: { format: { type: "json_schema", schema: answer } } }));
  calls.push(await ask(false, { max_tokens: 2 }));
  const counted = (await client.messages.countTokens({ model: "claude-opus-5", messages })).input_tokens;
  const refused = await client.messages.create({ model: "m", max_tokens: 3, messages: [] }).catch((error) => error.status);
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  return { calls, counted, models, refused };
}

async function session(script) {
  const calls = [], history = [], { parameters, ...tool } = script.tool;
  const asked = {
    system: script.system, tools: [{ ...tool, input_schema: parameters }], temperature: 0, thinking: { type: "adaptive" },
  };
  let results = [];
  for (const { ask, limit, stop } of script.lines) {
    history.push({ role: "user", content: ask || results });
    const stop_sequences = stop ? [stop] : undefined;
    const reply = await create(script.stream, { ...asked, messages: history, max_tokens: limit, stop_sequences });
    calls.push(told(reply));
    history.push({ role: "assistant", content: reply.content });
    results = calls.at(-1).calls.map(([tool_use_id, , args]) => ({
      type: "tool_result", tool_use_id, content: `sun in ${JSON.parse(args).city}`,
    }));
  }
  return { calls };
}

console.log(JSON.stringify(await (process.argv[2] ? session(JSON.parse(process.argv[2])) : plain())));
