// SPDX-License-Identifier: MIT
// Asks a server with ioredis and prints what it was answered, as one line of JSON.
'use strict';
const Redis = require('ioredis');

async function main(port) {
  const redis = new Redis({ port, maxRetriesPerRequest: 1, retryStrategy: null });
  const replies = { status: [] };
  redis.on('ready', () => replies.status.push('ready'));
  replies.first = await redis.call('CL.THROTTLE', 'node', 2, 1, 3600);
  const pipeline = redis.pipeline();
  for (let i = 0; i < 4; i++) pipeline.call('CL.THROTTLE', 'node', 2, 1, 3600);
  replies.pipeline = await pipeline.exec();
  const taken = await redis.call('STINT.TAKE', 'QUOTA', 'gcra 5/1h', 'node', 'COST', 2);
  replies.taken = {};
  for (let i = 0; i < taken.length; i += 2) replies.taken[taken[i]] = taken[i + 1];
  const back = await redis.call('STINT.REFUND', 'QUOTA', 'gcra 5/1h', 'node', 'COST', 2, 'AT',
    replies.taken.at);
  replies.refunded = back[back.indexOf('granted') + 1];
  replies.deleted = await redis.del('node');
  replies.error = await redis.call('STINT.TAKE', 'QUOTA', 'nonsense', 'node').catch((e) => e.message);
  replies.quit = await redis.quit();
  console.log(JSON.stringify(replies));
}

main(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
