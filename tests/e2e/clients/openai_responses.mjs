// Responses by the official SDK; see tests/e2e/test_sdk.py. A session's history is left at the provider.
import OpenAI from "openai";

const client = new OpenAI({ apiKey: "sk-nobody", maxRetries: 0 });
const parameters = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ type: "function", name: "bash", description: "Execute a bash command", parameters, strict: false }];

async function respond(stream, more) {
  const asked = { model: "gpt-5.2", ...more };
  return stream ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
}

function told(reply) {
  const thoughts = reply.output.filter((item) => item.type === "reasoning");
  const calls = reply.output.filter((item) => item.type === "function_call");
  return {
    text: reply.output_text,
    reasoning: thoughts.flatMap((item) => item.summary).map((part) => part.text).join(""),
    calls: calls.map((item) => [item.call_id, item.name, item.arguments]),
    finish: [reply.status, reply.incomplete_details?.reason].filter(Boolean),
    prompt: reply.usage.input_tokens,
    completion: reply.usage.output_tokens,
  };
}

const ask = async (stream, more) => told(await respond(stream, { input: "List the files", ...more }));

async function plain() {
  const calls = [];
  for (const stream of [false, true]) for (const more of [{}, { tools }]) calls.push(await ask(stream, more));
  calls.push(await ask(false, { tools, tool_choice: "required", parallel_tool_calls: false }));
  calls.push(await ask(false, { text: { format: { type: "json_schema", name: "answer", schema: answer } } }));
  calls.push(await ask(false, { max_output_tokens: 2 }));
  const counted = (await client.responses.inputTokens.count({ model: "gpt-5.2", input: "List the files" })).input_tokens;
  const bad = [{ type: "message", role: "wizard", content: "x" }];
  const refused = await client.responses.create({ model: "m", input: bad }).catch((error) => error.status);
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  return { calls, counted, models, refused };
}

async function session(script) {
  const calls = [], tools = [{ type: "function", strict: false, ...script.tool }];
  let input = [], previous_response_id;
  for (const { ask, limit } of script.lines) {
    if (ask) input.push({ role: "user", content: ask });
    const asked = { instructions: script.system, tools, temperature: 0, reasoning: { summary: "auto" } };
    const reply = await respond(script.stream, { ...asked, input, previous_response_id, max_output_tokens: limit });
    calls.push(told(reply));
    previous_response_id = reply.id;
    input = calls.at(-1).calls.map(([call_id, , args]) => ({
      type: "function_call_output", call_id, output: `sun in ${JSON.parse(args).city}`,
    }));
  }
  return { calls };
}

console.log(JSON.stringify(await (process.argv[2] ? session(JSON.parse(process.argv[2])) : plain())));
