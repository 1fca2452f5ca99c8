// SPDX-License-Identifier: MIT
// Express with limits: npm install && npm start
import express from "express";
import { limit, network } from "./limits.js";

// X-User stands for the user of your sessions. Without one the address is the key.
const perUser = {
  quota: "100/1m",
  key: (req) => (req.get("X-User") ? `user:${req.get("X-User")}` : `address:${network(req.ip)}`),
};
const logins = { quota: "5/1m", key: (req) => `login:${network(req.ip)}` };

const app = express();

app.get("/", limit(perUser), (req, res) => {
  res.json({ hello: "world" });
});

app.post("/login", limit(perUser, logins), (req, res) => {
  res.json({ hello: "user" });
});

app.listen(process.env.PORT ?? 3000, "127.0.0.1");
