// SPDX-License-Identifier: MIT
// The protocol of bench/peers/README.md for rate-limiter-flexible and its memory of one process.
"use strict";
const fs = require("fs");
const readline = require("readline");
const { RateLimiterMemory } = require("rate-limiter-flexible");

const [, row, nKeys, path, , operations, limit, periodMs] = process.argv.slice(2);
const keyText = (index) => "user:" + String(index).padStart(11, "0");
const say = (answer) => fs.writeSync(1, JSON.stringify(answer) + "\n");
const newLimiter = () => new RateLimiterMemory({ points: +limit, duration: periodMs / 1000 });

// A denial is a rejected promise.
async function take(limiter, key) {
  try {
    await limiter.consume(key);
    return 1;
  } catch (denied) {
    return 0;
  }
}

async function turn(limiter, keyAt) {
  const wall = process.hrtime.bigint();
  const cpu = process.cpuUsage();
  let granted = 0;
  for (let i = 0; i < +operations; i++) granted += await take(limiter, keyAt(i));
  const used = process.cpuUsage(cpu);
  say({
    operations: +operations,
    granted,
    cpu_s: (used.user + used.system) / 1e6,
    wall_s: Number(process.hrtime.bigint() - wall) / 1e9,
  });
}

async function keyed(lines) {
  const limiter = newLimiter();
  const keys = [];
  for (let i = 0; i < +nKeys; i++) {
    keys.push(keyText(i));
    await take(limiter, keys[i]);
  }
  const bytes = fs.readFileSync(path);
  const indices = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  let at = 0;
  say({ ready: true });
  for await (const _ of lines) {
    await turn(limiter, (i) => keys[indices[(at + i) & (indices.length - 1)]]);
    at += +operations;
  }
}

async function one(lines) {
  const limiter = newLimiter();
  say({ ready: true });
  for await (const _ of lines) await turn(limiter, () => "one");
}

async function memory(lines) {
  const kept = [];
  say({ ready: true });
  for await (const _ of lines) {
    global.gc();
    const before = process.memoryUsage().heapUsed;
    const limiter = newLimiter();
    for (let i = 0; i < +nKeys; i++) await take(limiter, keyText(i));
    kept.push(limiter);
    global.gc();
    say({ keys: +nKeys, heap_bytes: process.memoryUsage().heapUsed - before });
  }
}

async function ask(lines) {
  const limiter = newLimiter();
  say({ ready: true });
  for await (const line of lines) {
    const [, key, n] = line.split(" ");
    let granted = 0;
    for (let i = 0; i < +n; i++) granted += await take(limiter, key);
    say({ granted });
  }
}

// Timers of keys keep the process alive.
const lines = readline.createInterface({ input: process.stdin });
({ keyed, one, memory, ask })[row](lines).then(() => process.exit(0));
