// SPDX-License-Identifier: MIT
// Limits of a web application, decided by a server of stint, as middleware of Express.
//
// All limits of a route are one request to stint: if one denies, none is charged. The request is
// plain HTTP, because Node's fetch needs no package and its reply has the header fields that
// clients of the application get.
import { readFileSync } from "node:fs";

const TIME_LIMIT_MS = 250; // for the whole request
// What happens to requests that stint does not decide: they pass (open), or are refused with 503.
const failOpen = (process.env.STINT_FAIL ?? "open") === "open";
const take = new URL("/v1/take", process.env.STINT_URL ?? "http://127.0.0.1:8080");
const headers = { "Content-Type": "application/json" };
if (process.env.STINT_TOKEN_FILE) {
  const [token] = readFileSync(process.env.STINT_TOKEN_FILE, "ascii").split(/\s/);
  headers.Authorization = `Bearer ${token}`;
}

const texts = { 429: "Too many requests.", 503: "Limits cannot be checked now." };

// A client's address as a key: of IPv6 the /64, since a client may use all addresses in it.
export function network(address) {
  address = address.replace(/^::ffff:(?=\d+\.)/i, "").replace(/%.*/, "");
  if (!address.includes(":")) return address;
  const canonical = (text) => new URL(`http://[${text}]`).hostname.slice(1, -1);
  const [head, tail = []] = canonical(address).split("::")
    .map((groups) => groups.split(":").filter(Boolean));
  const zeros = Array(8 - head.length - tail.length).fill("0");
  return canonical([...head, ...zeros, ...tail].slice(0, 4).join(":") + "::") + "/64";
}

// Charges one unit of each limit, { quota, key: (req) => … }, before the handlers that follow.
export function limit(...limits) {
  return async (req, res, next) => {
    const items = limits.map(({ quota, key }) => ({ quota, key: key(req) }));
    const { status, fields } = await decide(JSON.stringify({ items }));
    res.set(fields);
    if (status === 200) next();
    else res.status(status).json({ detail: texts[status] });
  };
}

async function decide(body) {
  try {
    const signal = AbortSignal.timeout(TIME_LIMIT_MS);
    const reply = await fetch(take, { method: "POST", headers, body, signal });
    const text = await reply.text(); // read to its end, so that the connection is used again
    if (reply.status !== 200 && reply.status !== 429) {
      // 4xx is a request that stint refuses. No client may pass by causing one.
      return undecided(text, failOpen && reply.status >= 500);
    }
    const names = ["RateLimit-Policy", "RateLimit", "Retry-After"];
    const present = names.filter((name) => reply.headers.has(name));
    const fields = Object.fromEntries(present.map((name) => [name, reply.headers.get(name)]));
    return { status: reply.status, fields };
  } catch (error) {
    return undecided(error.cause ?? error, failOpen);
  }
}

function undecided(reason, passes) {
  console.warn(passes ? "not limited:" : "refused:", String(reason));
  return { status: passes ? 200 : 503, fields: {} };
}
