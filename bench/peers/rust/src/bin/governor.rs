// SPDX-License-Identifier: MIT
use ahash::RandomState;
use governor::clock::{DefaultClock, QuantaUpkeepClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::{DashMapStateStore, DefaultKeyedStateStore};
use governor::{clock::Clock, Quota, RateLimiter};
use peers::{Limiter, Options};
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::time::Duration;

fn quota(options: &Options) -> Quota {
    Quota::with_period(options.period / options.limit)
        .unwrap()
        .allow_burst(NonZeroU32::new(options.limit).unwrap())
}

/// As its guide begins: text keys, the hasher of the standard library, the clock quanta.
struct Default_(RateLimiter<String, DefaultKeyedStateStore<String>, DefaultClock>);

impl Limiter for Default_ {
    type Key = String;
    fn new(options: &Options) -> Self {
        Default_(RateLimiter::keyed(quota(options)))
    }
    fn key(text: &str) -> String {
        text.into()
    }
    fn take(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

type Fixed = [u8; 16];
type Map = DashMapStateStore<Fixed, RandomState>;

/// Keys of a fixed size, another hasher, and any of its clocks.
struct Fast<C: Clock>(RateLimiter<Fixed, Map, C, NoOpMiddleware<C::Instant>>);

trait Make: Clock + Sized {
    fn make() -> Self;
}

impl Make for DefaultClock {
    fn make() -> Self {
        DefaultClock::default()
    }
}

impl Make for QuantaUpkeepClock {
    fn make() -> Self {
        // A process has one thread that keeps it up.
        static CLOCK: OnceLock<QuantaUpkeepClock> = OnceLock::new();
        CLOCK.get_or_init(|| QuantaUpkeepClock::from_interval(UPKEEP).unwrap()).clone()
    }
}

const UPKEEP: Duration = Duration::from_millis(1);

impl<C: Make + Sync> Limiter for Fast<C>
where
    C::Instant: Sync,
{
    type Key = Fixed;
    fn new(options: &Options) -> Self {
        Fast(RateLimiter::new(quota(options), Map::with_hasher(RandomState::new()), C::make()))
    }
    fn key(text: &str) -> Fixed {
        text.as_bytes().try_into().unwrap()
    }
    fn take(&self, key: &Fixed) -> bool {
        self.0.check_key(key).is_ok()
    }
}

fn main() {
    let options = Options::read();
    match (options.form.as_str(), options.row.as_str()) {
        ("upkeep", "one") => {
            let clock = QuantaUpkeepClock::make();
            let one = RateLimiter::direct_with_clock(quota(&options), clock);
            peers::one(&options, || one.check().is_ok())
        }
        (_, "one") => {
            let one = RateLimiter::direct(quota(&options));
            peers::one(&options, || one.check().is_ok())
        }
        ("default", _) => peers::run::<Default_>(&options),
        ("fixed", _) => peers::run::<Fast<DefaultClock>>(&options),
        ("upkeep", _) => peers::run::<Fast<QuantaUpkeepClock>>(&options),
        (form, _) => panic!("unknown form {form}"),
    }
}
