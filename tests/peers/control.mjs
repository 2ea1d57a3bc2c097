// The control interface of the peers that run inside Node: POST /<verb> with a JSON object.
import { createServer } from "node:http";

export function serveControl(port, verbs) {
  const server = createServer(async (request, response) => {
    const answer = (status, value) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value ?? null));
    };
    try {
      let body = "";
      for await (const chunk of request) body += chunk;
      const verb = verbs[request.url.slice(1)];
      if (verb === undefined) return answer(404, { error: `no verb ${request.url}` });
      answer(200, await verb(body === "" ? {} : JSON.parse(body)));
    } catch (error) {
      answer(500, { error: String(error?.stack ?? error) });
    }
  });
  return new Promise((resolve, reject) => {
    server.once("error", reject).listen(Number(port), "127.0.0.1", resolve);
  });
}
