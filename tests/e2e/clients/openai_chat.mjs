// Chat Completions by the official SDK; see tests/e2e/test_sdk.py.
import OpenAI from "openai";

const client = new OpenAI({ apiKey: "sk-nobody", maxRetries: 0 });
const messages = [{ role: "user", content: "List the files" }];
const parameters = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ type: "function", function: { name: "bash", description: "Execute a bash command", parameters } }];

async function ask(stream, more) {
  const asked = { model: "gpt-5.2", messages, ...more };
  const reply = stream
    ? await client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } }).finalChatCompletion()
    : await client.chat.completions.create(asked);
  const { message } = reply.choices[0];
  return {
    text: message.content,
    arguments: (message.tool_calls ?? []).map((call) => call.function.arguments),
    prompt: reply.usage.prompt_tokens,
    completion: reply.usage.completion_tokens,
  };
}

const calls = [];
for (const stream of [false, true]) for (const more of [{}, { tools }]) calls.push(await ask(stream, more));
calls.push(await ask(false, { tools, tool_choice: "required", parallel_tool_calls: false }));
calls.push(await ask(false, { response_format: { type: "json_schema", json_schema: { name: "answer", schema: answer } } }));
calls.push(await ask(false, { max_completion_tokens: 2 }));
const refused = await client.chat.completions.create({ model: "m", messages: [] }).catch((error) => error.status);
const models = [];
for await (const model of client.models.list()) models.push(model.id);
console.log(JSON.stringify({ calls, counted: null, models, refused }));
