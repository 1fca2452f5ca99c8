# SPDX-License-Identifier: MIT
"""`stint serve --compat envoyproxy`: the environment, ports, pages and figures that the users of
envoyproxy/ratelimit have.
"""
import contextlib
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request

import grpc
import pytest

from program import SOURCE, STINT
from redis_server import Redis
from rls_messages import OK, OVER_LIMIT, ask_with, block, descriptor, fields, one, request
from server import Server, free_port
from tls_authority import Authority

# Every variable that its src/settings/settings.go reads, and GRPC_SERVER_TLS_CA_CERT, which Envoy
# Gateway sets beside them.
VARIABLES = set("""
BACKEND_TYPE CACHE_KEY_PREFIX CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS
CONFIG_GRPC_XDS_CLIENT_TLS_CERT CONFIG_GRPC_XDS_CLIENT_TLS_KEY CONFIG_GRPC_XDS_NODE_ID
CONFIG_GRPC_XDS_NODE_METADATA CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL
CONFIG_GRPC_XDS_SERVER_TLS_CACERT CONFIG_GRPC_XDS_SERVER_TLS_SAN CONFIG_GRPC_XDS_SERVER_URL
CONFIG_GRPC_XDS_SERVER_USE_TLS CONFIG_TYPE DEBUG_HOST DEBUG_PORT DISABLE_STATS
EXPIRATION_JITTER_MAX_SECONDS EXTRA_TAGS FORCE_START_WITHOUT_INITIAL_CONFIG GRPC_CLIENT_TLS_CACERT
GRPC_CLIENT_TLS_SAN GRPC_HOST GRPC_MAX_CONNECTION_AGE GRPC_MAX_CONNECTION_AGE_GRACE GRPC_PORT
GRPC_SERVER_TLS_CA_CERT GRPC_SERVER_TLS_CERT GRPC_SERVER_TLS_KEY GRPC_SERVER_USE_TLS GRPC_UDS
HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED HOST LIMIT_LIMIT_HEADER LIMIT_REMAINING_HEADER
LIMIT_RESET_HEADER LIMIT_RESPONSE_HEADERS_ENABLED LOCAL_CACHE_SIZE_IN_BYTES LOG_FORMAT LOG_LEVEL
MEMCACHE_HOST_PORT MEMCACHE_MAX_IDLE_CONNS MEMCACHE_SRV MEMCACHE_SRV_REFRESH MEMCACHE_TLS
MEMCACHE_TLS_CACERT MEMCACHE_TLS_CLIENT_CERT MEMCACHE_TLS_CLIENT_KEY
MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION MERGE_DOMAIN_CONFIG NEAR_LIMIT_RATIO PORT PROMETHEUS_ADDR
PROMETHEUS_MAPPER_YAML PROMETHEUS_PATH PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS QUOTA_MODE
REDIS_AUTH REDIS_CLUSTER_PIPELINE_PARALLELISM REDIS_HEALTH_CHECK_ACTIVE_CONNECTION REDIS_PERSECOND
REDIS_PERSECOND_AUTH REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM REDIS_PERSECOND_PIPELINE_LIMIT
REDIS_PERSECOND_PIPELINE_WINDOW REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR REDIS_PERSECOND_POOL_SIZE
REDIS_PERSECOND_SENTINEL_AUTH REDIS_PERSECOND_SOCKET_TYPE REDIS_PERSECOND_TIMEOUT
REDIS_PERSECOND_TLS REDIS_PERSECOND_TYPE REDIS_PERSECOND_URL REDIS_PIPELINE_LIMIT
REDIS_PIPELINE_WINDOW REDIS_POOL_ON_EMPTY_BEHAVIOR REDIS_POOL_SIZE REDIS_SENTINEL_AUTH
REDIS_SOCKET_TYPE REDIS_STARTUP_INITIAL_INTERVAL REDIS_STARTUP_MAX_ELAPSED_TIME
REDIS_STARTUP_MAX_INTERVAL REDIS_TIMEOUT REDIS_TLS REDIS_TLS_CACERT REDIS_TLS_CLIENT_CERT
REDIS_TLS_CLIENT_KEY REDIS_TLS_SKIP_HOSTNAME_VERIFICATION REDIS_TYPE REDIS_URL
RESPONSE_DYNAMIC_METADATA RUNTIME_APPDIRECTORY RUNTIME_IGNOREDOTFILES RUNTIME_ROOT
RUNTIME_SUBDIRECTORY RUNTIME_WATCH_ROOT SHADOW_MODE STATSD_HOST STATSD_PORT STATS_FLUSH_INTERVAL
STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT TRACING_ENABLED TRACING_EXPORTER_PROTOCOL
TRACING_SAMPLING_RATE TRACING_SERVICE_INSTANCE_ID TRACING_SERVICE_NAME TRACING_SERVICE_NAMESPACE
USE_DOG_STATSD USE_DOG_STATSD_MOGRIFIERS USE_PROMETHEUS USE_STATSD
XDS_CLIENT_BACKOFF_INITIAL_INTERVAL XDS_CLIENT_BACKOFF_JITTER XDS_CLIENT_BACKOFF_MAX_INTERVAL
XDS_CLIENT_BACKOFF_RANDOM_FACTOR XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES
""".split())

RULES = """\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 5}
  - key: tenant
    value: gold
    descriptors:
      - key: path
        detailed_metric: true
        rate_limit: {unit: hour, requests_per_unit: 10}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: word
    value_to_metric: true
    rate_limit: {unit: hour, requests_per_unit: 10}
"""


def clean():
    """The environment of the test without what it is about."""
    return {name: value for name, value in os.environ.items()
            if name not in VARIABLES and not name.startswith("STINT_")}


def printed(env=None, *options):
    """The settings that would be in force."""
    done = subprocess.run([STINT, "serve", "--compat", "envoyproxy", "--print-config", *options],
                          env={**clean(), **(env or {})}, capture_output=True, timeout=20,
                          check=False)
    assert done.returncode == 0, done.stderr
    return dict(re.findall(r"^([a-z0-9_]+): (.*)$", done.stdout.decode(), re.M))


def refused(env, *options):
    done = subprocess.run([STINT, "serve", "--compat", "envoyproxy", *options],
                          env={**clean(), **env}, capture_output=True, timeout=20, check=False)
    assert done.returncode in (1, 2), done.stderr
    return done.stderr.decode()


@pytest.fixture
def folder(tmp_path):
    """RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY, of which the first is a symlink."""
    config = tmp_path / "first/ratelimit/config"
    config.mkdir(parents=True)
    (config / "edge.yaml").write_text(RULES)
    (config / ".hidden.yaml").write_text("domain: [")
    (tmp_path / "current").symlink_to("first")
    return tmp_path


class Compat(Server):
    """Its HTTP ports in order: PORT, DEBUG_PORT and, with USE_PROMETHEUS, that of the figures."""

    def __init__(self, folder, *options, **env):
        ports = {name: str(free_port()) for name in ("PORT", "DEBUG_PORT", "GRPC_PORT")}
        super().__init__("--compat", "envoyproxy", *options, ports=False, env={
            "RUNTIME_ROOT": str(folder / "current"), "RUNTIME_SUBDIRECTORY": "ratelimit", **ports,
            **env})

    def get(self, path, frontend=0):
        url = "http://" + self.frontends["http"][frontend] + path
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read().decode()

    def figure(self, name):
        return int(re.search(rf"^{re.escape(name)}: (\d+)$", self.get("/stats", 1), re.M)[1])

    def channel(self):
        return grpc.insecure_channel(f"127.0.0.1:{self.port('grpc')}")


def curl(address, path, *options):
    """(status, body)."""
    done = subprocess.run(["curl", "-s", "-w", "\\n%{http_code}", *options,
                           f"http://{address}{path}"],
                          capture_output=True, text=True, timeout=20, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def ask(server, *entries, **options):
    with server.channel() as channel:
        return ask_with(channel)(request("edge", descriptor(*entries), **options), timeout=20)


# ---- The table ----

def rows():
    source = (SOURCE / "src/cmd/serve/serve_compat.c").read_text()
    variables, ignored = source[source.index("compat_variables[] = {"):].split("\n};\n")[:2]
    texts = re.findall(r'^ {4,5}\{?"([A-Z0-9_ ]+)"', ignored, re.M)
    return re.findall(r'^    (AS|NOT|REFUSED)\("([A-Z0-9_]+)"', variables, re.M) + [
        ("IGNORED", name) for text in texts for name in text.split()]


def test_each_of_their_variables_has_a_row():
    names = [name for _, name in rows()]
    assert len(names) == len(set(names))
    assert set(names) == VARIABLES


def test_the_guide_has_the_same_rows():
    guide = (SOURCE / "docs/migrate-from-envoyproxy-ratelimit.md").read_text()
    told = dict(re.findall(r"^\| `([A-Z0-9_]+)` \| (.+) \|$", guide, re.M))
    assert set(told) == VARIABLES
    for kind, name in rows():
        begins = {"IGNORED": "ignored: ", "REFUSED": "refused: "}.get(kind)
        if begins is None:
            assert not told[name].startswith(("ignored", "refused")), name
        else:
            assert told[name].startswith(begins), name


def test_settings_that_rows_name_are_settings():
    source = (SOURCE / "src/cmd/serve/serve_compat.c").read_text()
    named = set(re.findall(r'\("[A-Z0-9_]+", [A-Z]+, "([a-z_]+)"', source))
    assert len(named) > 15 and named <= set(printed())


# ---- Settings ----

def test_their_defaults():
    """But for the addresses: those are for this machine until somebody says that it is meant."""
    told = printed()
    assert told["http"] == '["127.0.0.1:8080", "127.0.0.1:6070"]'
    assert told["grpc"] == '["127.0.0.1:8081"]' and told["resp"] == '["off"]'
    assert told["rules"] == '["/srv/runtime_data/current/config"]'
    assert (told["grpc_age"], told["grpc_age_grace"]) == ("1d", "1h")
    assert told["metrics_names"] == '"both"' and told["near_limit"] == "800"
    assert told["default_algorithm"] == '"window"' and told["grpc_fields"] == '["off"]'


@pytest.mark.parametrize("options", [["--insecure"], ["--tokens", "/dev/null"]])
def test_their_addresses_where_that_is_meant(options):
    told = printed({"USE_PROMETHEUS": "true"}, *options)
    assert told["http"] == '["0.0.0.0:8080", "0.0.0.0:6070", ":9090"]'
    assert told["grpc"] == '["0.0.0.0:8081"]'


@pytest.mark.parametrize("env, told", [
    ({"HOST": "10.0.0.5", "PORT": "80"}, {"http": '["10.0.0.5:80", "127.0.0.1:6070"]'}),
    ({"HOST": "::1", "DEBUG_HOST": "::1", "DEBUG_PORT": "8080"}, {"http": '["[::1]:8080"]'}),
    ({"GRPC_HOST": "127.0.0.2", "GRPC_PORT": "9"}, {"grpc": '["127.0.0.2:9"]'}),
    ({"GRPC_UDS": "/run/rl.sock"}, {"grpc": '["unix:/run/rl.sock"]'}),
    ({"GRPC_SERVER_USE_TLS": "1", "GRPC_SERVER_TLS_CERT": "/c", "GRPC_SERVER_TLS_KEY": "/k",
      "GRPC_CLIENT_TLS_CACERT": "/a"},
     {"grpc": '["off"]', "grpc_tls": '["127.0.0.1:8081"]', "tls_certificate": '"/c"',
      "tls_key": '"/k"', "tls_client_ca": '"/a"'}),
    ({"GRPC_SERVER_TLS_CERT": "/c"}, {"grpc_tls": '["off"]', "tls_certificate": "null"}),
    ({"GRPC_MAX_CONNECTION_AGE": "1h30m", "GRPC_MAX_CONNECTION_AGE_GRACE": "1.5s"},
     {"grpc_age": "1h30m", "grpc_age_grace": "1s500ms"}),
    ({"LOG_LEVEL": "WARNING", "LOG_FORMAT": "JSON"},
     {"log_level": '"warn"', "log_format": '"json"'}),
    ({"LOG_LEVEL": "trace"}, {"log_level": '"debug"'}),
    ({"RUNTIME_ROOT": "/r", "RUNTIME_SUBDIRECTORY": "s", "RUNTIME_APPDIRECTORY": "a"},
     {"rules": '["/r/s/a"]'}),
    ({"SHADOW_MODE": "T", "QUOTA_MODE": "true", "MERGE_DOMAIN_CONFIG": "1",
      "RESPONSE_DYNAMIC_METADATA": "TRUE"},
     {"shadow_mode": "true", "quota_mode": "true", "merge_domains": "true",
      "grpc_metadata": "true"}),
    ({"SHADOW_MODE": "0"}, {"shadow_mode": "false"}),
    ({"FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
      "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true"},
     {"rules_may_fail": "true", "ready_with_rules": "true"}),
    ({"NEAR_LIMIT_RATIO": "0.855"}, {"near_limit": "855"}),
    ({"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_LIMIT_HEADER": "X-Limit",
      "LIMIT_REMAINING_HEADER": "X-Left", "LIMIT_RESET_HEADER": "X-Reset"},
     {"grpc_fields": '["draft-03"]', "grpc_limit_field": '"X-Limit"',
      "grpc_remaining_field": '"X-Left"', "grpc_reset_field": '"X-Reset"'}),
    ({"PROMETHEUS_PATH": "/figures"}, {"metrics_path": '"/figures"'}),
    ({"CONFIG_TYPE": "GRPC_XDS_SOTW", "RUNTIME_ROOT": "/nowhere"},
     {"rules": '["xds://default@localhost:18000"]', "ready_with_rules": "true",
      "xds_backoff": "10s", "xds_backoff_max": "1m", "xds_ca_file": "null"}),
    ({"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "[2001:db8::1]:18001",
      "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "true",
      "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/a", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/c",
      "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/k", "CONFIG_GRPC_XDS_SERVER_TLS_SAN": "plane",
      "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "X-Cluster:West,b:c:d,",
      "CONFIG_GRPC_XDS_NODE_METADATA": "Zone=a,b=c=d", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL": "1s",
      "XDS_CLIENT_BACKOFF_MAX_INTERVAL": "1h", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true"},
     {"rules": '["xdss://envoy-ratelimit@[2001:db8::1]:18001"]', "ready_with_rules": "false",
      "xds_ca_file": '"/a"', "xds_cert_file": '"/c"', "xds_key_file": '"/k"',
      "xds_server_name": '"plane"', "xds_headers": '["x-cluster:West", "b:c:d"]',
      "xds_metadata": '["Zone=a", "b=c=d"]', "xds_backoff": "1s", "xds_backoff_max": "1h"}),
    ({"STINT_DEFAULT_ALGORITHM": "fixed_window"}, {"default_algorithm": '"fixed_window"'}),
    ({"STINT_LOG_LEVEL": "error", "LOG_LEVEL": "debug"}, {"log_level": '"error"'}),
])
def test_what_each_means(env, told):
    found = printed(env)
    assert {name: found[name] for name in told} == told


def test_options_and_files_are_stronger(tmp_path):
    config = tmp_path / "stint.yaml"
    config.write_text("shadow_mode: false\nhttp: 127.0.0.1:1\n")
    told = printed({"SHADOW_MODE": "true", "PORT": "2", "GRPC_PORT": "3"}, "--config", str(config),
                   "--grpc", "127.0.0.1:4")
    assert told["shadow_mode"] == "false" and told["http"] == '["127.0.0.1:1"]'
    assert told["grpc"] == '["127.0.0.1:4"]'


@pytest.mark.parametrize("env, said", [
    ({"PORT": "http"}, "PORT: expected a port from 0 to 65535, not 'http'"),
    ({"GRPC_PORT": "65536"}, "GRPC_PORT: expected a port"),
    ({"HOST": "example.org"}, "HOST: 'example.org:8080' is not an address to listen at"),
    ({"SHADOW_MODE": "yes"}, "SHADOW_MODE: expected true or false, not 'yes'"),
    ({"GRPC_SERVER_USE_TLS": ""}, "GRPC_SERVER_USE_TLS: expected true or false, not ''"),
    ({"GRPC_MAX_CONNECTION_AGE": "soon"}, "GRPC_MAX_CONNECTION_AGE: expected a time"),
    ({"LOG_LEVEL": "loud"}, "LOG_LEVEL: expected trace"),
    ({"LOG_FORMAT": "xml"}, "LOG_FORMAT: expected text or json"),
    ({"NEAR_LIMIT_RATIO": "80"}, "NEAR_LIMIT_RATIO: expected a share from 0 to 1"),
    ({"NEAR_LIMIT_RATIO": "nan"}, "NEAR_LIMIT_RATIO: expected a share from 0 to 1"),
    ({"CONFIG_TYPE": "xds"}, "CONFIG_TYPE: expected FILE or GRPC_XDS_SOTW, not 'xds'"),
    ({"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_USE_TLS": "maybe"},
     "CONFIG_GRPC_XDS_SERVER_USE_TLS: expected true or false"),
    ({"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "host:port"},
     "xds://default@host:port': expected xds://HOST:PORT"),
    ({"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "te:x"},
     "xds_headers: expected NAME:VALUE"),
    ({"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "host:x"},
     "xds_headers: expected NAME:VALUE"),
    ({"GRPC_CLIENT_TLS_SAN": "envoy"}, "GRPC_CLIENT_TLS_SAN: names in client certificates"),
    ({"RUNTIME_ROOT": "/nowhere"}, "/nowhere/config"),
])
def test_what_cannot_be_meant_keeps_it_from_starting(env, said):
    assert said in refused(env)


def test_another_program_is_not_known():
    done = subprocess.run([STINT, "serve", "--compat", "kong"], capture_output=True, timeout=20,
                          check=False)
    assert done.returncode == 2
    assert b"--compat: expected envoyproxy, not 'kong'" in done.stderr


def test_an_open_address_is_refused_without_tokens(folder):
    told = refused({"HOST": "0.0.0.0", "PORT": str(free_port()), "DEBUG_PORT": str(free_port()),
                    "GRPC_PORT": str(free_port()), "RUNTIME_ROOT": str(folder / "first/ratelimit")})
    assert "can be reached from other machines" in told and "--insecure" in told


def test_what_is_ignored_is_told_once_with_the_reason(folder):
    with Compat(folder, REDIS_POOL_SIZE="5", REDIS_AUTH="hunter2", REDIS_PIPELINE_LIMIT="8",
                USE_STATSD="false", EXTRA_TAGS="a:b") as server:
        lines = [line for line in server.log.splitlines() if "compat_ignored" in line]
    assert len(lines) == 3
    assert any('variables="REDIS_POOL_SIZE REDIS_PIPELINE_LIMIT"' in line and
               "one connection" in line for line in lines)
    assert "hunter2" not in server.log
    assert "compat_local" in server.log


# ---- Their stores ----

@pytest.mark.parametrize("env, store", [
    ({}, "[]"),
    ({"REDIS_URL": ""}, "[]"),
    ({"REDIS_URL": "redis:6379"}, '["redis://redis:6379"]'),
    ({"REDIS_URL": "redis:6379", "REDIS_SOCKET_TYPE": "tcp", "REDIS_AUTH": "p@/%"},
     '["redis://:***@redis:6379"]'),
    ({"REDIS_URL": "redis:6379", "REDIS_AUTH": "me:word", "REDIS_TLS": "true"},
     '["rediss://me:***@redis:6379"]'),
    ({"REDIS_URL": "redis:6379", "REDIS_SOCKET_TYPE": "tls"}, '["rediss://redis:6379"]'),
    ({"REDIS_URL": "/run/nut cracker.sock"}, '["unix:/run/nut%20cracker.sock"]'),
    ({"REDIS_URL": "/run/redis.sock", "REDIS_SOCKET_TYPE": "unix", "REDIS_AUTH": "word"},
     '["unix://:***@/run/redis.sock"]'),
    ({"REDIS_URL": "a:1,b:2,c:3", "REDIS_TYPE": "CLUSTER", "REDIS_TLS": "1"},
     '["rediss-cluster://a:1,b:2,c:3"]'),
    ({"REDIS_URL": "my master,a:26379,b:26379", "REDIS_TYPE": "SENTINEL", "REDIS_AUTH": "x",
      "REDIS_SENTINEL_AUTH": "x"}, '["redis-sentinel://:***@a:26379,b:26379/my%20master"]'),
    ({"REDIS_URL": "a:1,b:2", "REDIS_TYPE": "cluster"}, '["redis-cluster://a:1,b:2"]'),
    ({"REDIS_URL": "m,a:1", "REDIS_TYPE": "Sentinel"}, '["redis-sentinel://a:1/m"]'),
    ({"REDIS_URL": "r:1", "REDIS_TYPE": "single"}, '["redis://r:1"]'),
    ({"REDIS_URL": "redis://r:1"}, '["redis://r:1"]'),
    ({"REDIS_URL": "redis://me:wo%40rd@r:1/7"}, '["redis://me:***@r:1/7"]'),
    ({"REDIS_URL": "rediss://:word@r:1/"}, '["rediss://:***@r:1"]'),
    ({"REDIS_URL": "redis://me:old@r:1", "REDIS_AUTH": "new"}, '["redis://me:***@r:1"]'),
    ({"REDIS_URL": "redis://me:old@r:1", "REDIS_AUTH": "you:new"}, '["redis://you:***@r:1"]'),
    ({"REDIS_URL": "redis://me:x@a:1,redis://me:x@b:2", "REDIS_TYPE": "cluster"},
     '["redis-cluster://me:***@a:1,b:2"]'),
    ({"REDIS_URL": "m,redis://:x@a:1,rediss://:x@b:2/3", "REDIS_TYPE": "sentinel"},
     '["rediss-sentinel://:***@a:1,b:2/m/3"]'),
    ({"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": "a:11211,b:11211", "REDIS_URL": "c:1"},
     '["memcached://a:11211,b:11211"]'),
    ({"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": "a:1", "MEMCACHE_TLS": "true"},
     '["memcacheds://a:1"]'),
    ({"REDIS_URL": "redis:6379", "STINT_STORE": "valkey://other"}, '["valkey://other"]'),
])
def test_their_store_is_ours(env, store):
    assert printed(env)["store"] == store


def test_what_belongs_to_their_store():
    told = printed({"REDIS_URL": "r:1", "REDIS_TLS": "t", "REDIS_TLS_CACERT": "/a",
                    "REDIS_TLS_CLIENT_CERT": "/c", "REDIS_TLS_CLIENT_KEY": "/k",
                    "MEMCACHE_TLS_CACERT": "/other", "REDIS_TIMEOUT": "1.5s",
                    "CACHE_KEY_PREFIX": "mine_", "REDIS_PERSECOND": "false"})
    assert {name: told[name] for name in (
        "store_ca_file", "store_cert_file", "store_key_file", "store_timeout", "store_prefix")} == {
            "store_ca_file": '"/a"', "store_cert_file": '"/c"', "store_key_file": '"/k"',
            "store_timeout": "1s500ms", "store_prefix": '"mine_"'}
    assert printed({"REDIS_URL": "r:1", "REDIS_TLS_CACERT": "/a"})["store_ca_file"] == "null"


@pytest.mark.parametrize("env, said", [
    ({"REDIS_URL": "a b:1"}, "REDIS_URL: a store's URL has no spaces"),
    ({"REDIS_URL": "r:1", "REDIS_SOCKET_TYPE": "udp"}, "REDIS_SOCKET_TYPE: expected unix, tcp"),
    ({"REDIS_URL": "r:1", "REDIS_TYPE": "ring"}, "REDIS_TYPE: expected SINGLE, CLUSTER or"),
    ({"REDIS_URL": "redis://:hush@a:1,redis://:other@b:1", "REDIS_TYPE": "cluster"},
     "REDIS_URL: all servers have the same user"),
    ({"REDIS_URL": "redis://:hush@"}, "REDIS_URL: '' is not a host of a store"),
    ({"REDIS_URL": "redis://:hush@r:1/x"}, "REDIS_URL: '/x' is not a database"),
    ({"REDIS_URL": "/r", "REDIS_TLS": "true"}, "REDIS_SOCKET_TYPE: a Unix socket leads to one"),
    ({"REDIS_URL": "a:1", "REDIS_TYPE": "SENTINEL"}, "REDIS_URL: expected the master's name"),
    ({"REDIS_URL": "m,a:1", "REDIS_TYPE": "SENTINEL", "REDIS_SENTINEL_AUTH": "hush"},
     "REDIS_SENTINEL_AUTH: sentinels and master have the same user"),
    ({"REDIS_PERSECOND": "true"}, "REDIS_PERSECOND: set store: NAME in rules per second"),
    ({"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "1"},
     "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: a server's certificate must bear its name"),
    ({"REDIS_TLS": "maybe", "REDIS_URL": "r:1"}, "REDIS_TLS: expected true or false"),
    ({"REDIS_TIMEOUT": "soon"}, "REDIS_TIMEOUT: expected a time"),
    ({"BACKEND_TYPE": "dynamo"}, "BACKEND_TYPE: expected redis or memcache"),
    ({"BACKEND_TYPE": "memcache"}, "BACKEND_TYPE: memcache needs MEMCACHE_HOST_PORT"),
    ({"MEMCACHE_SRV": "_memcache._tcp"}, "MEMCACHE_SRV: servers of memcached are named"),
])
def test_what_their_store_cannot_be_here_is_refused(env, said):
    told = refused({**env, "REDIS_AUTH": "hunter2"})
    assert said in told and "hunter2" not in told and "hush" not in told


# ---- Ports, pages, figures ----

def test_their_ports_and_paths(folder):
    with Compat(folder, USE_PROMETHEUS="true", PROMETHEUS_ADDR=f":{free_port()}",
                PROMETHEUS_PATH="/figures") as server:
        assert len(server.frontends["http"]) == 3
        assert server.get("/healthcheck") == "OK"
        answer = subprocess.run(
            ["curl", "-s", "-d", '{"domain":"edge","descriptors":[{"entries":[{"key":"user"}]}]}',
             f"http://{server.frontends['http'][0]}/json"],
            capture_output=True, timeout=20, check=True)
        assert b'"overallCode":"OK"' in answer.stdout
        assert "edge.user: unit=HOUR requests_per_unit=5" in server.get("/rlconfig", 1)
        for frontend in range(3):
            assert "ratelimit_service_config_load_success 1" in server.get("/figures", frontend)
        assert "stint_build_info" in server.get("/metrics", 2)


def test_their_figures(folder):
    with Compat(folder) as server:
        codes = [ask(server, ("user", "u")).code for _ in range(7)]
        assert codes == [OK] * 5 + [OVER_LIMIT] * 2
        assert [ask(server, ("trial", "t"), hits=2).code for _ in range(2)] == [OK, OK]
        assert ask(server, ("tenant", "gold"), ("path", "/a")).code == OK
        assert ask(server, ("word", "w.x")).code == OK
        begin = "ratelimit.service.rate_limit.edge."
        assert {name: server.figure(begin + "user." + name) for name in (
            "total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode")} == {
                "total_hits": 7, "over_limit": 2, "near_limit": 1, "within_limit": 5,
                "shadow_mode": 0}
        assert server.figure(begin + "trial.shadow_mode") == 4
        assert server.figure(begin + "tenant_gold.path_/a.total_hits") == 1
        assert server.figure(begin + "word_w_x.total_hits") == 1
        assert server.figure("ratelimit.service.config_load_success") == 1
        assert server.figure("ratelimit.service.call.should_rate_limit.service_error") == 0
        page = server.get("/metrics")
        for line in (
                'rate_limit_over_limit{domain="edge",key1="user"} 2',
                'rate_limit_total_hits{domain="edge",key1="tenant_gold",key2="path_/a"} 1',
                'total_requests{grpc_method="ShouldRateLimit"} 11'):
            assert f"\nratelimit_service_{line}\n" in page
        # Ours tell the same by value, of the two rules that ask for it.
        for line in ('rule="tenant=gold.path",value="gold /a",outcome="allow"} 1',
                     'rule="word",value="w.x",outcome="allow"} 1'):
            assert f'\nstint_detailed_decisions_total{{domain="edge",{line}\n' in page


# What envoyproxy/ratelimit has for each, of the commit f2fb157: observed, but for the dots of w.x.
NAMED = """\
domain: d
descriptors:
  - key: route
    value: api
    descriptors:
      - key: subject_id
        rate_limit: {unit: hour, requests_per_unit: 9}
      - key: told
        value_to_metric: true
        rate_limit: {unit: hour, requests_per_unit: 9}
  - key: above
    value_to_metric: true
    descriptors:
      - key: subject_id
        value_to_metric: false
        rate_limit: {unit: hour, requests_per_unit: 9}
  - key: below
    descriptors:
      - key: subject_id
        value_to_metric: true
        rate_limit: {unit: hour, requests_per_unit: 9}
  - key: files
    value: files/*
    share_threshold: true
    value_to_metric: true
    rate_limit: {unit: hour, requests_per_unit: 9}
  - key: plain
    value: w*
    descriptors:
      - key: flag
        value_to_metric: true
        rate_limit: {unit: hour, requests_per_unit: 9}
  - key: told
    value: w*
    value_to_metric: true
    rate_limit: {unit: hour, requests_per_unit: 9}
  - key: shared
    value: s/*
    share_threshold: true
    descriptors:
      - key: sub
        detailed_metric: true
        rate_limit: {unit: hour, requests_per_unit: 9}
  - key: apart
    value: s/*
    descriptors:
      - key: sub
        detailed_metric: true
        rate_limit: {unit: hour, requests_per_unit: 9}
  - key: word
    value_to_metric: true
    rate_limit: {unit: hour, requests_per_unit: 9}
"""
NAMES = [
    ([("route", "api"), ("subject_id", "user123")], "route_api.subject_id"),
    ([("route", "api"), ("told", "user123")], "route_api.told_user123"),
    ([("above", "r"), ("subject_id", "user123")], "above_r.subject_id"),
    ([("below", "r"), ("subject_id", "user123")], "below.subject_id_user123"),
    ([("files", "files/secret")], "files_files/*"),
    ([("plain", "wx"), ("flag", "f")], "plain_w*.flag_f"),
    ([("told", "wx")], "told_wx"),
    ([("shared", "s/a"), ("sub", "u")], "shared_s/*.sub_u"),
    ([("apart", "s/a"), ("sub", "u")], "apart_s/a.sub_u"),
    ([("word", "w.x")], "word_w_x"),
    ([("word", "192.0.2.1")], "word_192_0_2_1"),
    ([("word", "a:b|c")], "word_a_b_c"),
    ([("word", "two words")], "word_two words"),
    ([("word", "zürich")], "word_zürich"),
    ([("word", "")], "word"),
]


def test_their_names_of_values(folder):
    (folder / "current/ratelimit/config/edge.yaml").write_text(NAMED)
    with Compat(folder) as server, server.channel() as channel:
        for entries, _ in NAMES:
            assert ask_with(channel)(request("d", descriptor(*entries)), timeout=20).code == OK
        told = set(re.findall(r"^ratelimit\.service\.rate_limit\.d\.(.*)\.total_hits: 1$",
                              server.get("/stats", 1), re.M))
        page = server.get("/metrics")
    assert told == {name for _, name in NAMES}
    assert 'total_hits{domain="d",key1="below",key2="subject_id_user123"} 1' in page
    # Ours have the same values, and no other: one that no flag names is nowhere.
    assert set(re.findall(r'^stint_detailed_decisions_total.*rule="(\w+)=?[^"]*",value="(.*)",'
                          r'outcome="allow"\} 1$', page, re.M)) == {
        ("route", "user123"), ("above", "r"), ("below", "user123"), ("plain", "f"), ("told", "wx"),
        ("shared", "u"), ("apart", "s/a u"), ("word", "w.x"), ("word", "192.0.2.1"),
        ("word", "a:b|c"), ("word", "two words"), ("word", "zürich"), ("word", "")}
    assert "files/secret" not in page


def test_a_request_without_a_domain_is_an_error_of_the_service(folder):
    with Compat(folder) as server, server.channel() as channel:
        with pytest.raises(grpc.RpcError) as refusal:
            ask_with(channel)(block(2, descriptor(("user", "u"))), timeout=20)
        assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert server.figure("ratelimit.service.call.should_rate_limit.service_error") == 1


def test_other_rules_by_another_target_of_the_symlink(folder):
    with Compat(folder, "--watch", "100ms") as server:
        second = folder / "second/ratelimit/config"
        second.mkdir(parents=True)
        (second / "edge.yaml").write_text(RULES.replace("requests_per_unit: 5",
                                                        "requests_per_unit: 1"))
        (folder / "new").symlink_to("second")
        os.rename(folder / "new", folder / "current")
        server.wait_for("info reloaded")
        assert [ask(server, ("user", "u")).code for _ in range(2)] == [OK, OVER_LIMIT]
        (second / "edge.yaml").write_text("domain: [")
        server.wait_for("reload_failed")
        assert server.figure("ratelimit.service.config_load_success") == 2
        assert server.figure("ratelimit.service.config_load_error") >= 1


def test_rules_may_come_later(folder):
    """FORCE_START_WITHOUT_INITIAL_CONFIG, and health only once there are rules."""
    config = folder / "first/ratelimit/config/edge.yaml"
    config.write_text("domain: [")
    with Compat(folder, "--watch", "100ms", FORCE_START_WITHOUT_INITIAL_CONFIG="true",
                HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED="true") as server:
        assert "rules_lack" in server.log
        with pytest.raises(urllib.error.HTTPError) as failure:
            server.get("/healthcheck")
        assert failure.value.code == 500
        config.write_text(RULES)
        server.wait_for("info reloaded")
        assert server.get("/healthcheck") == "OK"
        assert ask(server, ("user", "u")).code == OK


@pytest.mark.parametrize("env, status", [
    ({}, 200), ({"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION": "true"}, 500)])
def test_health_includes_the_store_on_request(folder, env, status):
    """Kubernetes ends a container whose probe fails: a lost store is no reason, unless it is."""
    with Compat(folder, REDIS_URL=f"127.0.0.1:{free_port()}", **env) as server:
        server.wait_for("store_away")
        assert curl(server.frontends["http"][0], "/healthcheck")[0] == status


def test_health_ends_with_sigterm(folder):
    """Over gRPC under the name that theirs has, too."""
    with Compat(folder) as server, server.channel() as channel:
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch", request_serializer=bytes,
                                     response_deserializer=bytes)(block(1, "ratelimit"), timeout=60)
        assert one(fields(next(watch)), 1) == 1
        server.tell(signal.SIGTERM)
        with pytest.raises((grpc.RpcError, StopIteration)):
            while True:
                assert one(fields(next(watch)), 1) == 2


def test_their_algorithm(folder):
    with Compat(folder, STINT_DEFAULT_ALGORITHM="fixed_window") as server:
        assert "quota: fixed_window 5/1h" in server.get("/rlconfig")


# ---- Limits of any size, and the name that containers start ----

HUGE = """\
domain: edge
descriptors:
  - {key: huge, rate_limit: {unit: second, requests_per_unit: 1000000000}}
"""


@pytest.mark.parametrize("algorithm", ["window", "fixed_window", "sliding_counter", "gcra"])
def test_a_billion_each_second(folder, algorithm):
    (folder / "current/ratelimit/config/edge.yaml").write_text(HUGE)
    with Compat(folder, STINT_DEFAULT_ALGORITHM=algorithm) as server:
        assert ask(server, ("huge", "h"), hits=10**9).statuses[0].limit == 10**9


def test_called_ratelimit_it_needs_no_arguments(folder):
    program = folder / "ratelimit"
    program.symlink_to(STINT)
    done = subprocess.run([program], env={**clean(), "SHADOW_MODE": "maybe"}, capture_output=True,
                          timeout=20, check=False)
    assert done.returncode == 2 and b"SHADOW_MODE: expected true or false" in done.stderr
    done = subprocess.run([program, "version"], capture_output=True, timeout=20, check=True)
    assert done.stdout.startswith(b"stint ")
    ports = {name: str(free_port()) for name in ("PORT", "DEBUG_PORT", "GRPC_PORT")}
    env = {**clean(), **ports, "RUNTIME_ROOT": str(folder / "current"),
           "RUNTIME_SUBDIRECTORY": "ratelimit"}
    with Server(command=[program], ports=False, env=env) as server:
        assert server.port("http") == int(ports["PORT"])
    with Server(command=[program], ports=False, env={**env, "STINT_INSECURE": "false"}) as server:
        assert "compat_local" in server.log


def test_called_ratelimit_it_serves_other_machines_as_theirs_does(folder):
    """Decisions and metrics without a token; nothing that forgets units or sets quotas."""
    program = folder / "ratelimit"
    program.symlink_to(STINT)
    json = ["-H", "Content-Type: application/json", "-d"]
    with Server(command=[program], ports=False, env={
            "PORT": "0", "DEBUG_PORT": "0", "GRPC_PORT": "0", "RUNTIME_ROOT":
            str(folder / "current"), "RUNTIME_SUBDIRECTORY": "ratelimit"}) as server:
        assert server.frontends["http"][0].startswith("0.0.0.0:")
        address = f"127.0.0.1:{server.port('http')}"
        body = '{"domain":"edge","descriptors":[{"entries":[{"key":"user"}]}]}'
        assert curl(address, "/json", *json, body)[0] == 200
        assert curl(address, "/stats")[0] == 200 and curl(address, "/rlconfig")[0] == 200
        for verb in ("reset", "block"):
            status, text = curl(address, f"/v1/{verb}", *json,
                                '{"domain":"edge","descriptors":[{"user":"u"}]}')
            assert status == 403 and "roles do not allow" in text
        assert curl(address, "/v1/reload", "-X", "POST")[0] == 403


# ---- Beside envoyproxy/ratelimit f2fb157, which was asked the same under fixed windows ----

BESIDE = """\
domain: edge
descriptors:
  - {key: two, rate_limit: {unit: hour, requests_per_unit: 2, name: two}}
  - {key: ten, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: other
    rate_limit: {unit: hour, requests_per_unit: 5, replaces: [{name: two}]}
"""
HOUR, DAY, MONTH = 3, 4, 5


class Beside:
    """Asks in the domain edge, and tells the overall code and those of the descriptors."""

    def __init__(self, folder, *options, **env):
        (folder / "current/ratelimit/config/edge.yaml").write_text(BESIDE)
        self.server = Compat(folder, *options, STINT_DEFAULT_ALGORITHM="fixed_window", **env)

    def whole(self, *descriptors, domain="edge"):
        return ask_with(self.channel)(request(domain, *descriptors), timeout=20)

    def codes(self, *descriptors):
        answer = self.whole(*descriptors)
        return answer.code, *answer.codes

    def __enter__(self):
        self.server.__enter__()
        self.channel = self.server.channel()
        return self

    def __exit__(self, *error):
        self.channel.close()
        self.server.__exit__(*error)


def test_an_override_is_never_in_shadow_mode(folder):
    with Beside(folder) as beside:
        limited = descriptor(("trial", "x"), override=(1, HOUR))
        assert [beside.codes(limited) for _ in range(3)] == [(OK, OK)] + 2 * [
            (OVER_LIMIT, OVER_LIMIT)]


@pytest.mark.parametrize("has_store", [False, True])
@pytest.mark.parametrize("algorithm", ["fixed_window", "window"])
def test_an_override_of_another_unit_is_counted_apart(folder, algorithm, has_store):
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(Redis()) if has_store else None
        env = {"REDIS_URL": f"127.0.0.1:{redis.port}"} if has_store else {}
        beside = stack.enter_context(Beside(folder, "--default-algorithm", algorithm, **env))

        def left(key, *override):
            answer = beside.whole(descriptor((key, "x"), override=override or None))
            return answer.statuses[0].remaining if answer.code == OK else "over"

        assert [left("two"), left("two"), left("two")] == [1, 0, "over"]
        assert [left("two", 2, DAY) for _ in range(3)] == [1, 0, "over"]
        assert left("two") == "over"
        # In the rule's unit it is the rule with another limit.
        assert [left("two", 4, HOUR) for _ in range(3)] == [1, 0, "over"]
        # Without a rule as well: by unit, whatever the limits are.
        assert [left("none", 2, HOUR) for _ in range(3)] == [1, 0, "over"]
        assert [left("none", 2, DAY) for _ in range(3)] == [1, 0, "over"]
        assert [left("none", 3, HOUR), left("none", 3, HOUR)] == [0, "over"]
        assert left("free", 2, MONTH) == 1
        # Both in one request: one state, under both limits.
        both = [descriptor(("ten", "b")), descriptor(("ten", "b"), override=(12, HOUR))]
        assert [beside.codes(*both) for _ in range(6)] == 5 * [(OK, OK, OK)] + [
            (OVER_LIMIT, OVER_LIMIT, OK)]


def test_an_override_has_no_name_and_replaces_nothing(folder):
    with Beside(folder) as beside:
        answer = beside.whole(descriptor(("two", "x"), override=(9, HOUR)),
                              descriptor(("other", "x")))
        assert [(each.limit, each.name) for each in answer.statuses] == [(9, ""), (5, "")]
        answer = beside.whole(descriptor(("two", "x")),
                              descriptor(("other", "x"), override=(9, HOUR)))
        assert [(each.limit, each.name) for each in answer.statuses] == [(2, "two"), (9, "")]


def test_quota_mode_of_all(folder):
    with Beside(folder, QUOTA_MODE="true") as beside:
        both = [descriptor(("two", "u")), descriptor(("nothing", "x"))]
        assert [beside.codes(*both) for _ in range(4)] == 2 * [(OK, OK, OK)] + 2 * [
            (OK, OVER_LIMIT, OK)]
        alone = descriptor(("two", "alone"))
        assert [beside.codes(alone) for _ in range(3)] == 2 * [(OK, OK)] + [
            (OVER_LIMIT, OVER_LIMIT)]
        trial = [descriptor(("two", "t")), descriptor(("trial", "t"))]
        assert [beside.codes(*trial) for _ in range(4)] == 2 * [(OK, OK, OK)] + 2 * [
            (OK, OVER_LIMIT, OK)]
        # An unlimited one has no say.
        free = [descriptor(("two", "f"), hits=3), descriptor(("free", "f"))]
        assert beside.codes(*free) == (OVER_LIMIT, OVER_LIMIT, OK)
        over = [descriptor(("two", "o"), hits=3), descriptor(("ten", "o"), hits=11)]
        assert beside.codes(*over) == (OVER_LIMIT, OVER_LIMIT, OVER_LIMIT)
        assert beside.codes(*over, descriptor(("nothing", "o"))) == (
            OK, OVER_LIMIT, OVER_LIMIT, OK)


def test_shadow_mode_of_all(folder):
    """The overall code alone is OK; what a rule's own shadow_mode hides stays hidden."""
    with Beside(folder, SHADOW_MODE="true") as beside:
        both = [descriptor(("two", "u")), descriptor(("trial", "u"))]
        assert [beside.codes(*both) for _ in range(3)] == [
            (OK, OK, OK), (OK, OK, OK), (OK, OVER_LIMIT, OK)]
        assert beside.codes(descriptor(("nothing", "u"))) == (OK, OK)
        assert beside.whole(descriptor(("two", "u")), domain="egde").code == OK
        body = b'{"domain":"edge","descriptors":[{"entries":[{"key":"two","value":"u"}]}]}'
        answer = subprocess.run(
            ["curl", "-sw", "%{http_code}", "-d", body,
             "http://" + beside.server.frontends["http"][0] + "/json"],
            capture_output=True, timeout=20, check=True).stdout
        assert answer.endswith(b"200") and b'{"code":"OVER_LIMIT"' in answer
        begin = "ratelimit.service."
        assert {name: beside.server.figure(begin + name) for name in (
            "global_shadow_mode", "rate_limit.domain_not_found", "rate_limit.edge.two.over_limit",
            "rate_limit.edge.two.shadow_mode", "rate_limit.edge.trial.shadow_mode")} == {
                "global_shadow_mode": 2, "rate_limit.domain_not_found": 1,
                "rate_limit.edge.two.over_limit": 2, "rate_limit.edge.two.shadow_mode": 0,
                "rate_limit.edge.trial.shadow_mode": 2}
        page = beside.server.get("/metrics")
        assert "\nratelimit_service_global_shadow_mode 2\n" in page
        assert "\nratelimit_service_rate_limit_domain_not_found 1\n" in page
        assert "egde" not in page


def test_a_store_that_is_away_is_an_error(folder):
    """Envoy's failure_mode_deny decides; a limit that says on_store_error decides by itself."""
    with Beside(folder, REDIS_URL=f"127.0.0.1:{free_port()}") as beside:
        with pytest.raises(grpc.RpcError) as failure:
            beside.whole(descriptor(("two", "u")))
        assert failure.value.code() == grpc.StatusCode.UNAVAILABLE
        assert beside.codes(descriptor(("nothing", "u"))) == (OK, OK)
        body = b'{"domain":"edge","descriptors":[{"entries":[{"key":"two","value":"u"}]}]}'
        answer = subprocess.run(
            ["curl", "-sw", "%{http_code}", "-d", body,
             "http://" + beside.server.frontends["http"][0] + "/json"],
            capture_output=True, timeout=20, check=True).stdout
        assert answer.endswith(b"503")
        assert beside.server.figure("ratelimit.service.call.should_rate_limit.redis_error") == 1
        assert beside.server.figure("ratelimit.service.call.should_rate_limit.service_error") == 0
        rules = folder / "current/ratelimit/config/edge.yaml"
        rules.write_text(BESIDE.replace("2, name: two", "2, on_store_error: deny"))
        beside.server.tell(signal.SIGHUP)
        beside.server.wait_for("info reloaded")
        assert beside.codes(descriptor(("two", "u"))) == (OVER_LIMIT, OVER_LIMIT)
    with Beside(folder, "--store-on-error", "allow",
                REDIS_URL=f"127.0.0.1:{free_port()}") as beside:
        assert beside.codes(descriptor(("two", "u"))) == (OK, OK)


def test_what_no_rule_limits_is_told_once(folder):
    """Not for each request, and not for as many names as a client makes up."""
    with Beside(folder) as beside:
        for n in range(40):
            beside.whole(descriptor(("two", "u")), domain="egde")
            beside.whole(descriptor(("usr", f"secret{n}"), ("path", "/")))
        beside.server.wait_for("unmatched: ")
        for n in range(100):
            beside.whole(descriptor((f"key{n}\n\x1b[2J", "u")))
            beside.whole(descriptor(("two", "u")), domain=f"made-up-{n}" + 1000 * "x")
        beside.server.wait_for("note=", times=2)
        lines = [line for line in beside.server.log.splitlines()
                 if "domain_unknown: " in line or "unmatched: " in line]
        page = beside.server.get("/metrics")
    assert sum("domain=egde" in line for line in lines) == 1
    assert sum("domain=edge keys=usr.path" in line for line in lines) == 1
    assert len(lines) <= 32 and max(map(len, lines)) < 500
    assert "secret" not in "".join(lines) and "\x1b" not in "".join(lines)
    assert '\nstint_unmatched_descriptors_total{domain="edge"} 140\n' in page
    assert "\nstint_unknown_domain_descriptors_total 140\n" in page
    assert "egde" not in page and "made-up" not in page


def test_tls_by_their_variables(folder, tmp_path):
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.sign("server")
    with Compat(folder, GRPC_SERVER_USE_TLS="true", GRPC_SERVER_TLS_CERT=str(certificate),
                GRPC_SERVER_TLS_KEY=str(key)) as server:
        credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
        with grpc.secure_channel(f"localhost:{server.port('grpc-tls')}", credentials) as channel:
            answer = ask_with(channel)(request("edge", descriptor(("user", "u"))), timeout=20)
            assert answer.code == OK
