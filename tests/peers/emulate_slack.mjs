// Slack's Web API and Events API by `emulate`. Arguments: its port, the control port.
// Its command line cannot register an events URL, so its plugin is met on the way in.
import { readdirSync, readFileSync } from "node:fs";
import { createEmulator } from "emulate";
import { serveControl } from "./control.mjs";

const [port, controlPort] = process.argv.slice(2);
const folder = new URL("./node_modules/emulate/dist/", import.meta.url);
const carriesSlack = (name) =>
  /^dist-.*\.js$/.test(name) && readFileSync(new URL(name, folder), "utf8").includes("var slackPlugin");
const { slackPlugin } = await import(new URL(readdirSync(folder).find(carriesSlack), folder));

let hooks;
const register = slackPlugin.register;
slackPlugin.register = (app, store, webhooks, ...rest) => {
  hooks = webhooks;
  return register.call(slackPlugin, app, store, webhooks, ...rest);
};

const scopes = [
  "chat:write", "channels:read", "channels:history", "channels:join", "groups:history", "im:read",
  "im:write", "im:history", "files:read", "files:write", "reactions:read", "reactions:write",
  "users:read", "team:read",
];
const emulator = await createEmulator({
  service: "slack",
  port: Number(port),
  hostname: "127.0.0.1",
  seed: {
    slack: {
      team: { name: "Test", domain: "test" },
      signing_secret: "signing-secret-of-the-tests",
      users: [{ name: "alice", real_name: "Alice", email: "alice@example.com" }],
      channels: [{ name: "general" }, { name: "random" }],
      oauth_apps: [{
        app_id: "A0TEST", client_id: "1.2", client_secret: "of-the-tests", name: "Gateway",
        redirect_uris: [], scopes, bot_name: "perdure",
      }],
      tokens: [
        { token: "xoxp-alice", user: "alice", type: "user" },
        { token: "xoxb-perdure", user: "perdure", type: "bot", app_id: "A0TEST" },
      ],
    },
  },
});

await serveControl(controlPort, {
  ready: () => true,
  reset: () => {
    emulator.reset();
    hooks.clear();
  },
  subscribe: ({ url }) => hooks.register({ url, events: ["*"], active: true, owner: "slack" }),
  deliveries: () => hooks.getDeliveries(),
});
