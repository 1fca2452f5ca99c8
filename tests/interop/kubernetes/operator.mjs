// SPDX-License-Identifier: MIT
// Checks objects of the Prometheus operator by its schemas: a JSON array of them on standard input.
import * as fs from "node:fs";
import * as operator from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";

for (const object of JSON.parse(fs.readFileSync(0, "utf8")))
    new operator[object.kind](object).validate();
