// The same in Node: fetch and mqtt.js, in memory, nothing durable, no approvals.
import { randomUUID } from "node:crypto";
import mqtt from "mqtt";

const [endpoint, port, interval] = process.argv.slice(2);
const url = `${endpoint}/metadata/scheduledevents?api-version=2020-07-01`;
const client = await mqtt.connectAsync(`mqtt://127.0.0.1:${port}`, { clientId: "bench-node" });
let incarnation = null;

async function poll() {
  const answer = await fetch(url, { headers: { Metadata: "true" } });
  const document = await answer.json();
  if (document.DocumentIncarnation === incarnation) return;
  incarnation = document.DocumentIncarnation;
  for (const event of document.Events) {
    const message = {
      specversion: "1.0", id: randomUUID(), source: "/bench/node", type: "scheduledevent",
      time: new Date().toISOString(), data: event,
    };
    await client.publishAsync("bench/events", JSON.stringify(message), { qos: 1 });
  }
}

for (;;) {
  const began = performance.now();
  await poll();
  const left = Number(interval) * 1000 - (performance.now() - began);
  await new Promise((done) => setTimeout(done, Math.max(0, left)));
}
