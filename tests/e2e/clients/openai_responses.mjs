// Responses by the official SDK; see tests/e2e/test_sdk.py.
import OpenAI from "openai";

const client = new OpenAI({ apiKey: "sk-nobody", maxRetries: 0 });
const parameters = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ type: "function", name: "bash", description: "Execute a bash command", parameters, strict: false }];

async function ask(stream, more) {
  const asked = { model: "gpt-5.2", input: "List the files", ...more };
  const reply = stream ? await client.responses.stream(asked).finalResponse() : await client.responses.create(asked);
  return {
    text: reply.output_text,
    arguments: reply.output.filter((item) => item.type === "function_call").map((item) => item.arguments),
    prompt: reply.usage.input_tokens,
    completion: reply.usage.output_tokens,
  };
}

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
console.log(JSON.stringify({ calls, counted, models, refused }));
