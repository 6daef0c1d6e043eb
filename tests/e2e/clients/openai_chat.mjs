// Chat Completions by the official SDK; see tests/e2e/test_sdk.py.
import OpenAI from "openai";

const client = new OpenAI({ apiKey: "sk-nobody", maxRetries: 0 });
const messages = [{ role: "user", content: "List the files" }];
const parameters = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "bash", description: "Execute a bash command", parameters } }];

async function complete(stream, more) {
  const asked = { model: "gpt-5.2", ...more };
  if (!stream) return await client.chat.completions.create(asked);
  const events = client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } });
  // The SDK's own accumulator keeps only the last delta of a field that is not OpenAI's.
  let reasoning = "";
  for await (const chunk of events) reasoning += chunk.choices[0]?.delta.reasoning_content ?? "";
  const reply = await events.finalChatCompletion();
  if (reasoning) reply.choices[0].message.reasoning_content = reasoning;
  return reply;
}

function told(reply) {
  const { message, finish_reason } = reply.choices[0];
  return {
    text: message.content,
    reasoning: message.reasoning_content ?? "",
    calls: (message.tool_calls ?? []).map((call) => [call.id, call.function.name, call.function.arguments]),
    finish: [finish_reason],
    prompt: reply.usage.prompt_tokens,
    completion: reply.usage.completion_tokens,
  };
}

const ask = async (stream, more) => told(await complete(stream, { messages, ...more }));

async function plain() {
  const calls = [];
  for (const stream of [false, true]) for (const more of [{}, { tools }]) calls.push(await ask(stream, more));
  calls.push(await ask(false, { tools, tool_choice: "required", parallel_tool_calls: false }));
  calls.push(await ask(false, { response_format: { type: "json_schema", json_schema: { name: "answer", schema: answer } } }));
  calls.push(await ask(false, { max_completion_tokens: 2 }));
  const refused = await client.chat.completions.create({ model: "m", messages: [] }).catch((error) => error.status);
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  return { calls, counted: null, models, refused };
}

async function session(script) {
  const calls = [], history = [{ role: "system", content: script.system }];
  const tools = [{ type: "function", function: script.tool }];
  for (const { ask, limit, stop } of script.lines) {
    if (ask) history.push({ role: "user", content: ask });
    const asked = { messages: history, tools, temperature: 0, max_completion_tokens: limit, stop };
    const reply = await complete(script.stream, asked);
    calls.push(told(reply));
    history.push(reply.choices[0].message);
    for (const [id, , args] of calls.at(-1).calls) {
      history.push({ role: "tool", tool_call_id: id, content: `sun in ${JSON.parse(args).city}` });
    }
  }
  return { calls };
}

console.log(JSON.stringify(await (process.argv[2] ? session(JSON.parse(process.argv[2])) : plain())));
