// Telegram's Bot API with getUpdates by `telegram-test-api`. Argument: its port.
// It answers an empty poll at once, so a bot that polls as it should would spin. Here an empty poll
// is held for a second or until something arrives, which the Bot API allows a server to do.
import TelegramServer from "telegram-test-api";

const HOLD_MS = 1000;
const server = new TelegramServer({
  port: Number(process.argv[2]), host: "127.0.0.1", storeTimeout: 24 * 3600,
});
const arrivals = ["AddedUserMessage", "AddedUserCommand", "AddedUserCallbackQuery"];
server.setMaxListeners(0);

const waits = (token) =>
  !server.storage.userMessages.some((update) => update.botToken === token && !update.isRead);

function arrival(response) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      for (const name of arrivals) server.off(name, done);
      resolve();
    };
    const timer = setTimeout(done, HOLD_MS);
    for (const name of arrivals) server.on(name, done);
    response.once("close", done);
  });
}

const answer = server.webServer;
const held = async (request, response) => {
  const token = /^\/bot([^/]+)\/getUpdates/.exec(request.url)?.[1];
  if (token !== undefined && waits(decodeURIComponent(token))) await arrival(response);
  // Who has hung up must not be handed updates, for here they are gone once they are handed out.
  if (!response.destroyed) answer(request, response);
};
server.webServer = Object.assign(held, { settings: answer.settings });
await server.start();
