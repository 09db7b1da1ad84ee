/* A request of the playground as code for curl, Python and Node. Pure: text from text. */
"use strict";

const CODE_KEY = "YOUR_KEY";
const OPENAI_NAMES = new Set(["model", "messages", "temperature", "top_p", "max_tokens", "stop"]);

function codeOf(language, baseUrl, body) {
  return { curl: asCurl, python: asPython, node: asNode }[language](baseUrl, body);
}

function asCurl(baseUrl, body) {
  const json = JSON.stringify({ ...body, stream: true }, null, 2).replaceAll("'", "'\\''");
  return [
    `curl -N ${baseUrl}/chat/completions \\`,
    `  -H "Authorization: Bearer ${CODE_KEY}" \\`,
    '  -H "Content-Type: application/json" \\',
    `  -d '${json}'`,
  ].join("\n");
}

function asPython(baseUrl, body) {
  return [
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${JSON.stringify(baseUrl)}, api_key="${CODE_KEY}")`,
    "stream = client.chat.completions.create(",
    ...argumentsOf(body, "    ", (name, value) => `${name}=${value}`),
    "    stream=True,",
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="")',
  ].join("\n");
}

function asNode(baseUrl, body) {
  return [
    'import OpenAI from "openai";',
    "",
    `const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl)}, apiKey: "${CODE_KEY}" });`,
    "const stream = await client.chat.completions.create({",
    ...argumentsOf(body, "  ", (name, value) => `${name}: ${value}`),
    "  stream: true,",
    "});",
    "for await (const chunk of stream) {",
    '  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");',
    "}",
  ].join("\n");
}

/* JSON of strings, numbers and lists of them is also Python and JavaScript. */
function argumentsOf(body, indent, written) {
  return Object.entries(body)
    .filter(([name]) => OPENAI_NAMES.has(name))
    .map(([name, value]) => {
      const json = JSON.stringify(value, null, indent.length).replaceAll("\n", `\n${indent}`);
      return `${indent}${written(name, json)},`;
    });
}
