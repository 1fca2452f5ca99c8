// SPDX-License-Identifier: MIT
use peers::{Limiter, Options};
use std::sync::Mutex;
use std::time::SystemTime;
use throttlecrab::{PeriodicStore, RateLimiter};

/// A take changes the limiter, so threads share it behind a lock. The store has room for all keys.
struct Crab {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    limit: i64,
    period_s: i64,
}

impl Limiter for Crab {
    type Key = String;
    fn new(options: &Options) -> Self {
        let store = PeriodicStore::builder().capacity(options.keys.max(1)).build();
        Crab {
            limiter: Mutex::new(RateLimiter::new(store)),
            limit: options.limit as i64,
            period_s: options.period.as_secs() as i64,
        }
    }
    fn key(text: &str) -> String {
        text.into()
    }
    fn take(&self, key: &String) -> bool {
        let now = SystemTime::now();
        let mut limiter = self.limiter.lock().unwrap();
        limiter.rate_limit(key, self.limit, self.limit, self.period_s, 1, now).unwrap().0
    }
}

fn main() {
    let options = Options::read();
    if options.row == "one" {
        let (one, key) = (Crab::new(&options), "one".to_string());
        peers::one(&options, || one.take(&key))
    } else {
        peers::run::<Crab>(&options)
    }
}
