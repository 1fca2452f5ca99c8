# SPDX-License-Identifier: MIT
"""Stores of several processes, as they are run: sentinels, clusters; and memcached.

Nodes give each other up within a second, so that a test of it is short; not sooner, or one that
waits for its turn on a machine that is shared is taken for lost.
"""
import contextlib
import socket
import tempfile

from redis_server import Process, Redis, until
from server import free_port

SLOTS = 16384
GIVES_UP_MS = 1000


class Several:
    """Servers that are kept and stopped together."""

    def __init__(self):
        self.servers = []

    def add(self, server):
        self.servers.append(server)
        return server

    def __enter__(self):
        try:
            self.begin()
        except BaseException as fault:
            self.__exit__(type(fault))
            raise
        return self

    def __exit__(self, kind, *_):
        with contextlib.ExitStack() as all_of_them:
            for server in self.servers:
                all_of_them.callback(server.__exit__, kind)


class Sentinels(Several):
    """A master, its replicas, and three sentinels of which two must agree."""

    def __init__(self, replicas=2, sentinels=3, **settings):
        super().__init__()
        self.n_replicas, self.n_sentinels, self.settings = replicas, sentinels, settings
        self.sentinels = []

    def begin(self):
        self.master = self.add(Redis(**self.settings))
        self.replicas = [self.add(Redis(replicaof=f"127.0.0.1 {self.master.port}", wait=False,
                                        repl_diskless_sync_delay=0, **self.settings))
                         for _ in range(self.n_replicas)]
        for replica in self.replicas:
            replica.wait()
            until(lambda one=replica: one.info("master_link_status") == "up", "a replica follows")
        lines = [f"sentinel monitor main 127.0.0.1 {self.master.port} 2",
                 f"sentinel down-after-milliseconds main {GIVES_UP_MS}",
                 # Twice that is waited where they could not agree, or no replica was fit.
                 "sentinel failover-timeout main 4000", "sentinel parallel-syncs main 2"]
        ways_in = {name: value for name, value in self.settings.items() if name in ("tls", "acl")}
        if "acl" in ways_in:
            name, password, _ = ways_in["acl"][0]
            lines += [f"sentinel auth-user main {name}", f"sentinel auth-pass main {password}"]
        self.sentinels = [self.add(Redis(*lines, program="redis-sentinel", wait=False, **ways_in))
                          for _ in range(self.n_sentinels)]
        for sentinel in self.sentinels:
            sentinel.wait()
            # What they do every two and every ten seconds, oftener. A replica is fit if it told of
            # itself within five pings: every second, once its master is down.
            sentinel.cli("SENTINEL", "DEBUG", "PUBLISH-PERIOD", 100, "INFO-PERIOD", 500,
                         "PING-PERIOD", 400)
        until(self._all_is_known, "the sentinels know each other and the replicas")

    def _all_is_known(self):
        wanted = f"slaves={self.n_replicas},sentinels={self.n_sentinels}"
        return all(wanted in one.info("master0") for one in self.sentinels)

    def leader(self):
        """Whom the sentinels tell of as the master now."""
        port = int(self.sentinels[0].cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME",
                                         "main").splitlines()[-1])
        return next(one for one in self.servers if one.port == port)

    def switched_from(self, server):
        """Waits for another master that takes writes; returns it."""
        def found():
            leader = self.leader()
            return leader is not server and leader.info("role") == "master" and leader
        return until(found, "another master", 30)

    def switches(self):
        """How often there was another master: each may lack what had not reached it."""
        return max(one.log.count("+switch-master") for one in self.sentinels)

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        return f"redis-sentinel://{hosts}/main"


class Cluster(Several):
    """Masters with as many slots each, and a replica for each of them. Where one is lost the others
    go on with what they have, as docs/distributed.md advises."""

    def __init__(self, masters=3, replicas=1, **settings):
        super().__init__()
        self.n_masters, self.n_replicas, self.settings = masters, replicas, settings

    def begin(self):
        for _ in range(self.n_masters * (1 + self.n_replicas)):
            self.add(Redis(wait=False, cluster_enabled="yes", cluster_port=free_port(),
                           cluster_node_timeout=GIVES_UP_MS, repl_diskless_sync_delay=0,
                           cluster_allow_replica_migration="no",
                           cluster_require_full_coverage="no", **self.settings))
        for node in self.servers:
            node.wait()
        self.masters = self.servers[:self.n_masters]
        self.replicas = self.servers[self.n_masters:]
        first = self.masters[0]
        for number, master in enumerate(self.masters):
            begin = SLOTS * number // self.n_masters
            end = SLOTS * (number + 1) // self.n_masters - 1
            master.cli("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            master.cli("CLUSTER", "ADDSLOTSRANGE", begin, end)
        for node in self.servers[1:]:
            first.cli("CLUSTER", "MEET", "127.0.0.1", node.port, self.bus(node))
        count = len(self.servers)
        until(lambda: all(self.knows(node, count) for node in self.servers), "all nodes have met")
        for number, replica in enumerate(self.replicas):
            replica.cli("CLUSTER", "REPLICATE", self.id_of(self.masters[number % self.n_masters]))
        self.wait_until_whole()
        for replica in self.replicas:
            until(lambda one=replica: one.info("master_link_status") == "up", "a replica follows")
            # It stands for election only if its master's other nodes know of it.
            until(lambda one=replica: all(self.is_replica(one, node) for node in self.servers),
                  "all know the replica")

    @staticmethod
    def bus(node):
        return next(line.split()[1] for line in open(node.path, encoding="utf-8")
                    if line.startswith("cluster-port "))

    @staticmethod
    def nodes(node):
        """The words of each line of CLUSTER NODES, as this node sees it."""
        return [line.split() for line in node.cli("CLUSTER", "NODES").splitlines()]

    def knows(self, node, count):
        words = self.nodes(node)
        return len(words) == count and all("handshake" not in one[2] for one in words)

    def is_replica(self, replica, node):
        name = self.id_of(replica)
        return any(words[0] == name and "slave" in words[2] for words in self.nodes(node))

    @staticmethod
    def id_of(node):
        return node.cli("CLUSTER", "MYID")

    def running(self):
        return [node for node in self.servers if node.is_running() and not node.is_paused]

    def forget(self):
        """All states are as never used."""
        for node in self.running():
            if node.info("role") == "master":
                node.cli("FLUSHALL")

    def promotions(self):
        """How often a replica took over: each may lack what had not reached it."""
        return sum(node.log.count("Failover election won") for node in self.servers)

    def wait_until_whole(self, seconds=30):
        until(lambda: all("cluster_state:ok" in node.cli("CLUSTER", "INFO")
                          for node in self.running()), "the cluster serves all slots", seconds)

    def slot_of(self, key):
        return int(self.running()[0].cli("CLUSTER", "KEYSLOT", key))

    def owner(self, slot):
        """The master that a node of the cluster says the slot is at."""
        for words in self.nodes(self.running()[0]):
            for span in words[8:]:
                begin, _, end = span.partition("-")
                if begin.isdigit() and int(begin) <= slot <= int(end or begin):
                    port = int(words[1].partition("@")[0].rpartition(":")[2])
                    return next(node for node in self.servers if node.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def migrate(self, slot, to, at_half=None):
        """Moves a slot with its keys, as operators do; at_half() is called while it is between."""
        source = self.owner(slot)
        names = {node: self.id_of(node) for node in (source, to)}
        to.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
        source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", names[to])
        if at_half:
            at_half()
        while keys := source.cli("CLUSTER", "GETKEYSINSLOT", slot, 100).split():
            source.cli("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *keys)
        for node in (to, source, *self.masters):
            if node.is_running():
                node.cli("CLUSTER", "SETSLOT", slot, "NODE", names[to])

    def wait_for_promotion(self, slot, of, seconds=30):
        """Until another node serves the slot of a master that is gone; returns it."""
        def found():
            owner = self.owner(slot)
            return owner is not of and owner
        owner = until(found, "a replica was promoted", seconds)
        self.wait_until_whole(seconds)
        return owner

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.masters)
        return f"redis-cluster://{hosts}"


class Memcached(Process):
    """memcached with so many MB; _ stands for - in options that are given by name."""

    def __init__(self, *options, megabytes=64, port=None, host="127.0.0.1", prefix=()):
        self.host, self.port = host, port or free_port()
        command = ["memcached", "-l", host, "-p", self.port, "-U", 0, "-m", megabytes,
                   "-u", "nobody", *options]
        folder = tempfile.mkdtemp(prefix="stint-memcached-")
        super().__init__(command, f"memcached-{self.port}", folder, prefix)
        self.wait()

    def wait(self):
        until(lambda: self.ask("version").startswith("VERSION"), "memcached answers")

    def ask(self, line, end=b"\r\n"):
        """One command in text, until its last line; "" where nobody answers."""
        assert self.is_running(), self.log
        try:
            with socket.create_connection((self.host, self.port), timeout=5) as link:
                link.sendall(line.encode() + b"\r\n")
                answer = b""
                while not answer.endswith(end):
                    more = link.recv(65536)
                    if not more:
                        break
                    answer += more
                return answer.decode()
        except OSError:
            return ""

    def stats(self):
        lines = self.ask("stats", b"END\r\n").splitlines()
        return {words[1]: words[2] for words in map(str.split, lines) if len(words) > 2}

    def restart(self):
        """The same server anew; it has forgotten all."""
        self.kill()
        self.start()
        self.wait()

    @property
    def url(self):
        return f"memcached://{self.host}:{self.port}"
