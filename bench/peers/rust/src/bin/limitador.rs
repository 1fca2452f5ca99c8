// SPDX-License-Identifier: MIT
use limitador::limit::{Context, Limit, Namespace};
use limitador::RateLimiter;
use peers::{Limiter, Options};
use std::collections::HashMap;

/// As its documentation applies limits: a context of named values for each request.
struct Library {
    limiter: RateLimiter,
    namespace: Namespace,
}

const VARIABLE: &str = "user";

impl Limiter for Library {
    type Key = String;
    fn new(options: &Options) -> Self {
        // Room for twice the keys, so that none is evicted.
        let limiter = RateLimiter::new(2 * options.keys as u64);
        limiter.add_limit(Limit::new(
            "bench",
            options.limit as u64,
            options.period.as_secs(),
            Vec::default(),
            [VARIABLE.try_into().unwrap()],
        ));
        Library { limiter, namespace: "bench".into() }
    }
    fn key(text: &str) -> String {
        text.into()
    }
    fn take(&self, key: &String) -> bool {
        let values = HashMap::from([(VARIABLE.to_string(), key.clone())]);
        let context = Context::from(values);
        !self
            .limiter
            .check_rate_limited_and_update(&self.namespace, &context, 1)
            .unwrap()
            .limited
    }
}

fn main() {
    let options = Options::read();
    if options.row == "one" {
        let (one, key) = (Library::new(&options), "one".to_string());
        peers::one(&options, || one.take(&key))
    } else {
        peers::run::<Library>(&options)
    }
}
