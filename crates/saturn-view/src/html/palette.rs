//! A colour for each task: even in lightness, so that dark labels read on all of them and no task
//! shouts; neighbours in the workload far apart in hue.

use super::concat;

/// Turning by this angle (degrees, the golden one) keeps any number of hues apart.
const TURN: f64 = 137.507_764;
/// Hue of the first task.
const FIRST_HUE: f64 = 255.0;
/// Alternating lightness tells apart what hue alone does not once there are many tasks.
const LIGHTNESS: [f64; 3] = [0.72, 0.80, 0.65];
const CHROMA: f64 = 0.125;

/// The CSS that gives class `t0`, `t1` … its colour as `--c`.
pub(super) fn css(num_tasks: usize) -> String {
    concat((0..num_tasks).map(|task| format!(".t{task}{{--c:{}}}", colour(task))))
}

/// The colour of the task at `index`, as `#rrggbb`.
pub(super) fn colour(index: usize) -> String {
    let hue = (FIRST_HUE + TURN * index as f64) % 360.0;
    let [red, green, blue] = srgb(LIGHTNESS[index % LIGHTNESS.len()], CHROMA, hue);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// OKLCH to sRGB, clipped, by the matrices of <https://bottosson.github.io/posts/oklab/>.
fn srgb(lightness: f64, chroma: f64, hue_degrees: f64) -> [u8; 3] {
    let (sine, cosine) = hue_degrees.to_radians().sin_cos();
    let (a, b) = (chroma * cosine, chroma * sine);
    let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let medium = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548 * b).powi(3);
    [
        4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short,
        -1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short,
        -0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701 * short,
    ]
    .map(|linear| {
        let encoded = if linear <= 0.003_130_8 {
            12.92 * linear
        } else {
            1.055 * linear.powf(1.0 / 2.4) - 0.055
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to what a byte holds"
        )]
        let byte = (encoded.clamp(0.0, 1.0) * 255.0).round() as u8;
        byte
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_conversion_knows_white_and_red() {
        assert_eq!(srgb(1.0, 0.0, 0.0), [255, 255, 255]);
        // The published OKLCH of pure red.
        assert_eq!(srgb(0.627_955, 0.257_683, 29.234), [255, 0, 0]);
    }

    #[test]
    fn sixty_tasks_have_sixty_colours() {
        let colours: BTreeSet<String> = (0..60).map(colour).collect();
        assert_eq!(colours.len(), 60);
    }
}
