//! The sequences of keys that the benchmarks check.

/// Returns a key of 19 bytes.
pub fn name(number: u64) -> String {
    format!("user:{number:014}")
}

/// A seeded generator of pseudo-random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns `calls` keys drawn uniformly from `keys` keys.
pub fn uniform(keys: u64, calls: usize) -> Vec<String> {
    let mut random = Random::new(1);
    (0..calls).map(|_| name(random.next() % keys)).collect()
}

/// Returns `calls` keys drawn from `keys` keys with Zipf's distribution: the k-th has a weight of 1/k.
pub fn zipf(keys: u64, calls: usize) -> Vec<String> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut random = Random::new(2);
    let mut draw = || {
        let point = random.unit() * sum;
        let rank = cumulative.partition_point(|up_to| *up_to < point) as u64;
        // Scatter the ranks, so that popular keys are not neighbours.
        name(rank.wrapping_mul(7_919) % keys)
    };
    (0..calls).map(|_| draw()).collect()
}
