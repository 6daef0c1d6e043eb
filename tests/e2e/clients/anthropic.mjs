// Messages by the official SDK; see tests/e2e/test_sdk.py.
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ apiKey: "sk-nobody", maxRetries: 0 });
const messages = [{ role: "user", content: "List the files" }];
const input_schema = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ name: "bash", description: "Execute a bash command", input_schema }];

async function ask(stream, more) {
  const asked = { model: "claude-opus-5", max_tokens: 64, messages, ...more };
  const reply = stream ? await client.messages.stream(asked).finalMessage() : await client.messages.create(asked);
  return {
    text: reply.content.filter((block) => block.type === "text").map((block) => block.text).join(""),
    arguments: reply.content.filter((block) => block.type === "tool_use").map((block) => JSON.stringify(block.input)),
    prompt: reply.usage.input_tokens + (reply.usage.cache_read_input_tokens ?? 0),
    completion: reply.usage.output_tokens,
  };
}

const calls = [];
for (const stream of [false, true]) for (const more of [{}, { tools }]) calls.push(await ask(stream, more));
calls.push(await ask(false, { tools, tool_choice: { type: "any", disable_parallel_tool_use: true } }));
calls.push(await ask(false, { output_config: { format: { type: "json_schema", schema: answer } } }));
calls.push(await ask(false, { max_tokens: 2 }));
const counted = (await client.messages.countTokens({ model: "claude-opus-5", messages })).input_tokens;
const refused = await client.messages.create({ model: "m", max_tokens: 3, messages: [] }).catch((error) => error.status);
const models = [];
for await (const model of client.models.list()) models.push(model.id);
console.log(JSON.stringify({ calls, counted, models, refused }));
