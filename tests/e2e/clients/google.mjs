// generateContent by the official SDK; see tests/e2e/test_sdk.py.
import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({ apiKey: "nobody" });
const schema = { type: "object", properties: { command: { type: "string", maxLength: 20 } }, required: ["command"] };
const answer = { type: "object", properties: { answer: { type: "boolean" } }, required: ["answer"], additionalProperties: false };
const tools = [{ functionDeclarations: [{ name: "bash", description: "Execute a bash command", parametersJsonSchema: schema }] }];

async function generate(stream, contents, config) {
  const asked = { model: "gemini-3-pro", contents, config };
  if (!stream) return [await client.models.generateContent(asked)];
  const chunks = [];
  for await (const chunk of await client.models.generateContentStream(asked)) chunks.push(chunk);
  return chunks;
}

const said = (chunks) => chunks.flatMap((chunk) => chunk.candidates[0].content?.parts ?? []);

function told(chunks) {
  const parts = said(chunks), last = chunks.at(-1), usage = last.usageMetadata;
  const calls = parts.flatMap((part) => part.functionCall ?? []);
  return {
    text: parts.filter((part) => !part.thought).map((part) => part.text ?? "").join(""),
    reasoning: parts.filter((part) => part.thought).map((part) => part.text).join(""),
    calls: calls.map((call) => [call.id, call.name, JSON.stringify(call.args)]),
    finish: [last.candidates[0].finishReason],
    prompt: usage.promptTokenCount,
    completion: (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0),
  };
}

const ask = async (stream, config) => told(await generate(stream, "List the files", config));

async function plain() {
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
  return { calls, counted, models, refused };
}

async function session(script) {
  const calls = [], contents = [], { parameters, ...tool } = script.tool;
  const config = {
    systemInstruction: script.system, temperature: 0, thinkingConfig: { includeThoughts: true },
    tools: [{ functionDeclarations: [{ ...tool, parametersJsonSchema: parameters }] }],
  };
  let results = [];
  for (const { ask, limit, stop } of script.lines) {
    contents.push({ role: "user", parts: ask ? [{ text: ask }] : results });
    const stopSequences = stop ? [stop] : undefined;
    const chunks = await generate(script.stream, contents, { ...config, maxOutputTokens: limit, stopSequences });
    calls.push(told(chunks));
    contents.push({ role: "model", parts: said(chunks) });
    results = calls.at(-1).calls.map(([id, name, args]) => ({
      functionResponse: { id, name, response: { output: `sun in ${JSON.parse(args).city}` } },
    }));
  }
  return { calls };
}

console.log(JSON.stringify(await (process.argv[2] ? session(JSON.parse(process.argv[2])) : plain())));
