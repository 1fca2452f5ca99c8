// SPDX-License-Identifier: MIT
// Asks Envoy's rate limit service with @grpc/grpc-js, past a limit, and prints what it was answered
// as one line of JSON. Messages are written by hand, from their field numbers.
'use strict';
const grpc = require('@grpc/grpc-js');

const PATH = '/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit';

function block(field, bytes) {
  const value = Buffer.from(bytes);
  if (value.length > 127) throw new Error('longer than one byte of length can say');
  return Buffer.concat([Buffer.from([(field << 3) | 2, value.length]), value]);
}

function request(domain, key, value) {
  const entry = Buffer.concat([block(1, key), block(2, value)]);
  return Buffer.concat([block(1, domain), block(2, block(1, entry))]);
}

// overall_code is field 1, a varint, and stands first.
const overallCode = (message) => (message[0] === 8 ? message[1] : 0);

function ask(client, message, options = {}) {
  return new Promise((resolve) => {
    client.makeUnaryRequest(PATH, (m) => m, overallCode, message, new grpc.Metadata(), options,
      (error, code) => resolve(error ? { code: error.code, details: error.details } : code));
  });
}

async function main(address) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure());
  const replies = { codes: [] };
  for (let i = 0; i < 5; i++) replies.codes.push(await ask(client, request('shop', 'user', 'node')));
  replies.together = await Promise.all(
    Array.from({ length: 200 }, () => ask(client, request('shop', 'half', 'node'))));
  replies.empty = await ask(client, Buffer.alloc(0));
  replies.late = await ask(client, request('shop', 'user', 'late'), { deadline: 1 });
  client.close();
  console.log(JSON.stringify(replies));
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});
