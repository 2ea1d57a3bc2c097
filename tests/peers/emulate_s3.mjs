// An S3 by `emulate`, for the peer that keeps its media in one. Argument: its port.
import { createEmulator } from "emulate";

await createEmulator({ service: "aws", port: Number(process.argv[2]), hostname: "127.0.0.1" });
