# SPDX-License-Identifier: MIT
"""A real Prometheus on loopback: it scrapes servers of stint each second, by a token if given."""
import json
import tempfile
import urllib.error
import urllib.parse
import urllib.request

from redis_server import Process, until
from server import free_port

SCRAPE_S = 1


class Prometheus(Process):
    """`targets` are {job: ports}. Rules of `rules` are evaluated each second, too."""

    def __init__(self, targets, rules=(), token=None):
        folder = tempfile.mkdtemp(prefix="stint-prometheus-")
        self.port, self.targets = free_port(), targets
        config = {
            "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
            "rule_files": list(map(str, rules)),
            "scrape_configs": [
                {"job_name": job,
                 "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
                 **({"authorization": {"credentials": token}} if token else {})}
                for job, ports in targets.items()],
        }
        with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as out:
            json.dump(config, out)  # is YAML, too
        super().__init__(["prometheus", f"--config.file={folder}/prometheus.yml",
                          f"--storage.tsdb.path={folder}/data",
                          f"--web.listen-address=127.0.0.1:{self.port}"], "prometheus", folder)
        until(self._is_ready, "Prometheus is ready", seconds=60)

    def _is_ready(self):
        assert self.is_running(), self.log
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def ask(self, path, **parameters):
        """`data` of the reply of /api/v1/PATH."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expr):
        """{labels: value} now; labels as a sorted tuple of pairs."""
        return {tuple(sorted(each["metric"].items())): float(each["value"][1])
                for each in self.ask("query", query=expr)["result"]}

    def query_range(self, expr, start, end, step):
        """[(labels, [(time, value), …]), …]."""
        return [(each["metric"], [(at, float(value)) for at, value in each["values"]])
                for each in self.ask("query_range", query=expr, start=start, end=end,
                                     step=step)["result"]]

    def scrapes(self):
        """Of the target with the fewest, those that succeeded."""
        n = sum(map(len, self.targets.values()))
        counts = list(self.query("sum_over_time(up[1h])").values())
        return min(counts) if len(counts) == n else 0
