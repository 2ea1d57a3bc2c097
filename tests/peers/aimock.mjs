// A model for agents by `aimock`, behind a proxy that keeps the requests. Arguments: its port, the
// control port. It speaks the wires of OpenAI (chat and responses), Anthropic and Gemini.
//
// The prompt says what the model does. Of the newest message of the user that holds directives, the
// last ones that stand beside each other count, in turn: [[TOOL name {json}]] calls the tool whose
// name ends so, and after its result the next directive counts. At the end it says the result.
//   [[SAY text]]  [[SLOW n text]]  [[TOOLS]]  [[ERR status]]  [[CUT]]
import { createServer, request as send } from "node:http";
import { LLMock } from "@copilotkit/aimock";
import { serveControl } from "./control.mjs";

const [port, controlPort] = process.argv.slice(2);
const DIRECTIVE = /\[\[(SAY|SLOW|TOOLS|TOOL|ERR|CUT)\b\s*([\s\S]*?)\]\]/g;

const textOf = ({ content }) =>
  typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join("\n");

function directivesIn(text) {
  let run = [], end = 0;
  for (const found of text.matchAll(DIRECTIVE)) {
    const isBeside = text.slice(end, found.index).trim() === "";
    run = [...(isBeside ? run : []), { op: found[1], words: found[2].trim() }];
    end = found.index + found[0].length;
  }
  return run;
}

// The directive that counts now, and the tool's result that was the last thing said, if one was.
function situation({ messages }) {
  const last = messages.at(-1);
  const result = last?.role === "tool" ? textOf(last) : undefined;
  for (let at = messages.length - 1; at >= 0; at--) {
    const run = messages[at].role === "user" ? directivesIn(textOf(messages[at])) : [];
    const done = messages.slice(at).filter(({ role }) => role === "tool").length;
    if (run.length > 0) return { ...run[done], result };
  }
  return { result };
}

const namesOf = ({ tools }) => (tools ?? []).map((tool) => tool.function?.name ?? tool.name);

function callTool(request) {
  const [, wanted, args] = situation(request).words.match(/^(\S+)\s*([\s\S]*)$/);
  const names = namesOf(request);
  const name = names.find((each) => each === wanted) ?? names.find((each) => each.endsWith(wanted));
  if (name === undefined) return { content: `NOTOOL ${wanted} in ${names.join(",")}` };
  return { toolCalls: [{ name, arguments: args || "{}" }] };
}

function counted(request) {
  const [, times, text] = situation(request).words.match(/^(\d+)\s*([\s\S]*)$/);
  const piece = (_, at) => `${text}${String(at).padStart(3, "0")}`.padEnd(8, ".");
  return { content: Array.from({ length: Number(times) }, piece).join("") };
}

function refused(request) {
  const status = Number(situation(request).words) || 500;
  return { error: { message: `refused with ${status}`, type: "server_error" }, status };
}

const mock = new LLMock({ port: 0, host: "127.0.0.1", logLevel: "warn" });
const on = (op, response, rest = {}) =>
  mock.addFixture({ match: { predicate: (request) => situation(request).op === op }, response, ...rest });
on("TOOL", callTool);
on("TOOLS", (request) => ({ content: `TOOLS<${namesOf(request).join(",")}>` }));
on("SAY", (request) => ({ content: situation(request).words }), { chunkSize: 12 });
on("SLOW", counted, { chunkSize: 8, latency: 50 });
on("ERR", refused);
on("CUT", { content: "this answer is cut off in the middle by the server" },
  { chunkSize: 5, latency: 30, truncateAfterChunks: 3 });
on(undefined, (request) => {
  const { result } = situation(request);
  return { content: result === undefined ? "hello from the model" : `TOOLRESULT<${result}>` };
});
const upstream = new URL(await mock.start());

// `aimock` drops the tools that Codex groups in a namespace, so they are made flat on the way in,
// and get their namespace back on the way out.
function flattened(body) {
  const tools = (body.tools ?? []).flatMap((tool) =>
    tool.type !== "namespace" ? [tool]
      : tool.tools.map((each) => ({ ...each, name: `${tool.name}__${each.name}` })));
  const spaces = (body.tools ?? []).filter(({ type }) => type === "namespace").map(({ name }) => name);
  return { tools, spaces };
}

const regrouped = (line, spaces) => spaces.reduce(
  (changed, space) => changed.replaceAll(`"name":"${space}__`, `"namespace":"${space}","name":"`), line);

let requests = [];
let asked = 0, gone = 0;

async function forward(incoming, outgoing) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  let body = Buffer.concat(chunks), spaces = [];
  if (incoming.method === "POST") {
    const given = JSON.parse(body.toString());
    requests.push({ number: ++asked, path: incoming.url, headers: incoming.headers, body: given });
    if (incoming.url.endsWith("/responses")) {
      const flat = flattened(given);
      spaces = flat.spaces;
      body = Buffer.from(JSON.stringify({ ...given, tools: flat.tools }));
    }
  }
  const headers = { ...incoming.headers, host: upstream.host, "content-length": body.length };
  const target = new URL(incoming.url, upstream);
  const onward = send(target, { method: incoming.method, headers }, async (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    outgoing.flushHeaders();
    let rest = "";
    try {
      for await (const piece of answer.setEncoding("utf8")) {
        const lines = (rest + piece).split("\n");
        rest = lines.pop();
        for (const line of lines) outgoing.write(regrouped(line, spaces) + "\n");
      }
      outgoing.end(regrouped(rest, spaces));
    } catch {
      outgoing.destroy();
    }
  });
  onward.on("error", () => outgoing.destroy());
  // Who asked has gone: the model need not go on.
  outgoing.on("close", () => {
    if (!outgoing.writableFinished) gone++;
    onward.destroy();
  });
  onward.end(body);
}

const server = createServer((incoming, outgoing) => forward(incoming, outgoing).catch(() => outgoing.destroy()));
await new Promise((resolve) => server.listen(Number(port), "127.0.0.1", resolve));
await serveControl(controlPort, {
  ready: () => "ready",
  requests: () => ({ requests, gone }),
  reset: () => { requests = []; gone = 0; },
});
