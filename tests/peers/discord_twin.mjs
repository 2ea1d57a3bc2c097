// Discord's gateway and REST by `discord-digital-twin`. Arguments: the control port, a folder.
// Every world has a guild, users and a database file of its own, and comes at a port of its own.
import { rmSync } from "node:fs";
import { Server } from "node:http";
import { join } from "node:path";
import { DigitalDiscord } from "discord-digital-twin";
import { serveControl } from "./control.mjs";

const [controlPort, folder] = process.argv.slice(2);
const TEXT_CHANNEL = 0;

// It listens on every interface, and has no option for that.
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return typeof rest[0] === "string"
    ? listen.call(this, port, ...rest)
    : listen.call(this, port, "127.0.0.1", ...rest);
};

const worlds = new Map();

async function open() {
  const name = `world-${worlds.size + 1}`;
  const database = join(folder, `${name}.db`);
  rmSync(database, { force: true }); // of an earlier life in the same folder
  const world = new DigitalDiscord({
    botToken: "MTAwMDAwMDAwMDAwMDAwMDAx.tests.token",
    botUser: { id: "100000000000000001", username: "perdure" },
    dbUrl: `file:${database}`,
    guild: { name: "Test" },
    channels: [
      { name: "general", type: TEXT_CHANNEL },
      { name: "random", type: TEXT_CHANNEL },
    ],
    users: [{ username: "alice" }, { username: "bob" }],
  });
  await world.start();
  worlds.set(name, world);
  const named = (rows, key) => Object.fromEntries(rows.map((row) => [row[key], row.id]));
  return {
    world: name,
    rest_url: world.restUrl,
    gateway_url: world.gatewayUrl,
    bot_token: world.botToken,
    bot_user: world.botUserId,
    guild: world.guildId,
    channels: named(await world.prisma.channel.findMany(), "name"),
    users: named(await world.prisma.user.findMany(), "username"),
  };
}

async function close({ world }) {
  await worlds.get(world).stop();
  worlds.set(world, null);
}

const at = ({ world, channel }) => worlds.get(world).channel(channel);
const actor = (call) => at(call).user(call.user);

await serveControl(controlPort, {
  ready: () => true,
  open,
  close,
  write: (call) => actor(call).sendMessage({
    content: call.text,
    ...(call.reply_to && {
      messageReference: { message_id: call.reply_to, channel_id: call.channel },
    }),
  }),
  edit: (call) => actor(call).editMessage({ messageId: call.message, content: call.text }),
  delete: (call) => actor(call).deleteMessage({ messageId: call.message }),
  click: (call) => actor(call).clickButton({ messageId: call.message, customId: call.custom_id }),
  command: (call) => actor(call).runSlashCommand({ name: call.name, options: call.options }),
  messages: (call) => at(call).getMessages(),
  threads: (call) => at(call).getThreads(),
  typing: (call) => at(call).getTypingEvents(),
  answer: (call) => at(call).getInteractionResponse(call.interaction),
  connections: ({ world }) =>
    worlds.get(world).server.gateway.clients.filter((client) => client.identified).length,
  cut: ({ world }) => {
    for (const client of [...worlds.get(world).server.gateway.clients]) client.ws.terminate();
  },
});
