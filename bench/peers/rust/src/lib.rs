// SPDX-License-Identifier: MIT
//! The protocol of bench/peers/README.md, for limiters of Rust.
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

pub struct Options {
    pub form: String,
    pub row: String,
    pub keys: usize,
    sequence: String,
    threads: usize,
    operations: usize,
    pub limit: u32,
    pub period: Duration,
}

impl Options {
    pub fn read() -> Options {
        let word: Vec<String> = std::env::args().skip(1).collect();
        assert!(word.len() == 8, "usage: FORM ROW KEYS SEQUENCE THREADS OPERATIONS LIMIT PERIOD_MS");
        Options {
            form: word[0].clone(),
            row: word[1].clone(),
            keys: word[2].parse().unwrap(),
            sequence: word[3].clone(),
            threads: word[4].parse().unwrap(),
            operations: word[5].parse().unwrap(),
            limit: word[6].parse().unwrap(),
            period: Duration::from_millis(word[7].parse().unwrap()),
        }
    }
}

/// A limiter as its users have it; the key is what they look up with.
pub trait Limiter: Sync {
    type Key: Sync;
    fn new(options: &Options) -> Self;
    fn key(text: &str) -> Self::Key;
    fn take(&self, key: &Self::Key) -> bool;
}

fn key_text(index: usize) -> String {
    format!("user:{index:011}")
}

fn cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn say(line: String) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

fn sequence(path: &str) -> Vec<u32> {
    let bytes = std::fs::read(path).expect("SEQUENCE");
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// One turn by some threads; each reads on in its own part of the sequence.
fn turn<F: Fn(usize) -> usize + Sync>(options: &Options, run: F) {
    let (wall, cpu) = (Instant::now(), cpu_s());
    let granted: usize = if options.threads == 1 {
        run(0)
    } else {
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> =
                (0..options.threads).map(|t| scope.spawn(move || run(t))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        })
    };
    say(format!(
        "{{\"operations\": {}, \"granted\": {granted}, \"cpu_s\": {:.9}, \"wall_s\": {:.9}}}",
        options.operations, cpu_s() - cpu, wall.elapsed().as_secs_f64()
    ));
}

fn keyed<L: Limiter>(options: &Options) {
    let limiter = L::new(options);
    let keys: Vec<L::Key> = (0..options.keys).map(|i| L::key(&key_text(i))).collect();
    let sequence = sequence(&options.sequence);
    let mask = sequence.len() - 1;
    for key in &keys {
        limiter.take(key);
    }
    say("{\"ready\": true}".into());
    let share = options.operations / options.threads;
    for (turns, _) in std::io::stdin().lock().lines().enumerate() {
        turn(options, |thread| {
            let at = turns * share + thread * (sequence.len() / options.threads);
            (at..at + share).filter(|i| limiter.take(&keys[sequence[i & mask] as usize])).count()
        });
    }
}

fn memory<L: Limiter>(options: &Options) {
    say("{\"ready\": true}".into());
    let mut kept = Vec::new();
    for _ in std::io::stdin().lock().lines() {
        let limiter = L::new(options);
        for i in 0..options.keys {
            limiter.take(&L::key(&key_text(i)));
        }
        kept.push(limiter);
        say(format!("{{\"keys\": {}}}", options.keys));
    }
}

fn ask<L: Limiter>(options: &Options) {
    let limiter = L::new(options);
    say("{\"ready\": true}".into());
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let word: Vec<&str> = line.split(' ').collect();
        let key = L::key(&format!("{:>16}", word[1]));
        let granted = (0..word[2].parse().unwrap()).filter(|_: &u32| limiter.take(&key)).count();
        say(format!("{{\"granted\": {granted}}}"));
    }
}

/// The row `one`: a limiter without keys.
pub fn one<F: Fn() -> bool + Sync>(options: &Options, take: F) {
    say("{\"ready\": true}".into());
    for _ in std::io::stdin().lock().lines() {
        turn(options, |_| (0..options.operations / options.threads).filter(|_| take()).count());
    }
}

/// The rows with keys.
pub fn run<L: Limiter>(options: &Options) {
    match options.row.as_str() {
        "keyed" => keyed::<L>(options),
        "memory" => memory::<L>(options),
        "ask" => ask::<L>(options),
        row => panic!("unknown row {row}"),
    }
}
