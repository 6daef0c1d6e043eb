// generateContent by the official SDK; see tests/e2e/test_sdk.py.
import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({ apiKey: "nobody" });
const schema = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ functionDeclarations: [{ name: "bash", description: "Execute a bash command", parametersJsonSchema: schema }] }];

async function ask(stream, config) {
  const asked = { model: "gemini-3-pro", contents: "List the files", config };
  const chunks = [];
  if (stream) for await (const chunk of await client.models.generateContentStream(asked)) chunks.push(chunk);
  else chunks.push(await client.models.generateContent(asked));
  const parts = chunks.flatMap((chunk) => chunk.candidates[0].content?.parts ?? []);
  const usage = chunks.at(-1).usageMetadata;
  return {
    text: parts.map((part) => part.text ?? "").join(""),
    arguments: parts.filter((part) => part.functionCall).map((part) => JSON.stringify(part.functionCall.args)),
    prompt: usage.promptTokenCount,
    completion: usage.candidatesTokenCount,
  };
}

const calls = [];
for (const stream of [false, true]) for (const config of [{}, { tools }]) calls.push(await ask(stream, config));
calls.push(await ask(false, { tools, toolConfig: { functionCallingConfig: { mode: "ANY" } } }));
calls.push(await ask(false, { responseMimeType: "application/json", responseJsonSchema: answer }));
calls.push(await ask(false, { maxOutputTokens: 2 }));
const counted = (await client.models.countTokens({ model: "gemini-3-pro", contents: "List the files" })).totalTokens;
const bad = { model: "m", contents: "x", config: { temperature: 9 } };
const refused = await client.models.generateContent(bad).then(() => null, (error) => error.status);
const models = [];
for await (const model of await client.models.list()) models.push(model.name);
console.log(JSON.stringify({ calls, counted, models, refused }));
