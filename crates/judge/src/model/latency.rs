//! How long the vCPUs of a guest wait for a CPU, in bands, for the picture over time.

use super::DomainModel;
use sample::{Histogram, Timing};

/// Bands of waits, each four times as long as its predecessor; see [`band_from_us`].
pub const WAIT_BANDS: usize = 8;
/// The last bucket of a [`Histogram`] that is in the first band.
const FIRST: usize = 4;

/// How often vCPUs waited for a CPU, by how long.
pub type WaitBands = [u32; WAIT_BANDS];

/// The shortest wait of a band, microseconds; the last band holds all longer waits.
pub fn band_from_us(band: usize) -> f64 {
    if band == 0 { 0.0 } else { Histogram::upper(FIRST + 2 * (band - 1)) as f64 / 1e3 }
}

/// The waits of a guest's vCPUs, from woken or pre-empted to running; `None` if none was measured.
pub(super) fn waits(domain: &DomainModel) -> Option<WaitBands> {
    domain.vcpus().filter_map(|t| bands(t.run_delays.as_deref()?)).reduce(|mut sum, bands| {
        sum.iter_mut().zip(bands).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        sum
    })
}

fn bands(times: &Timing) -> Option<WaitBands> {
    let Histogram(buckets) = times.histogram.as_ref()?;
    let mut bands = WaitBands::default();
    for (bucket, count) in buckets.iter().enumerate() {
        let band = &mut bands[(bucket.saturating_sub(FIRST - 1) / 2).min(WAIT_BANDS - 1)];
        *band = band.saturating_add(u32::try_from(*count).unwrap_or(u32::MAX));
    }
    Some(bands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fall_into_bands_of_a_factor_of_four() {
        let limits: Vec<u32> = (0..WAIT_BANDS).map(|band| band_from_us(band).round() as u32).collect();
        assert_eq!(limits, [0, 2, 8, 33, 131, 524, 2097, 8389]);
        let mut waits = Timing::default();
        [500, 2_000, 2_100, 8_000, 8_400_000, u64::MAX / 4].into_iter().for_each(|ns| waits.add(ns));
        assert_eq!(bands(&waits), Some([2, 2, 0, 0, 0, 0, 0, 2]));
    }
}
