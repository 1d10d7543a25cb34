//! The looks that distinguish tasks: a colour, a texture for bars and a dash for lines.
//!
//! People who see no red, no green or no blue can tell the eight colours apart; a test computes the
//! distances. Colour is never the only cue. Consecutive lines also differ in their dash. After
//! eight tasks the colours repeat, and bars and dots get a texture. Looks repeat after
//! [`NUM_LOOKS`] tasks.

/// Eight colours whose least distance is as large as a search could make it, under normal vision
/// and three kinds of dichromatic vision. Their order keeps neighbours furthest apart. Dark labels
/// are readable on all of them.
const COLOURS: [&str; 8] =
    ["#488b81", "#c5c7fd", "#e99404", "#9d66d5", "#6fb2a5", "#c4670b", "#49e59a", "#c48dfc"];
/// Dashes of lines; the first is a solid line.
const DASHES: [&str; 4] = ["none", "7 3", "2 2.5", "9 3 2 3"];
/// Textures over the colour of a filled shape; the first is no texture.
const TEXTURES: [&str; 4] = [
    "none",
    "repeating-linear-gradient(45deg,#0007 0 1.5px,#0000 1.5px 5px)",
    "repeating-linear-gradient(-45deg,#0007 0 1.5px,#0000 1.5px 5px)",
    "repeating-linear-gradient(0deg,#0007 0 1.5px,#0000 1.5px 4px)",
];
/// The number of different looks.
pub(super) const NUM_LOOKS: usize = COLOURS.len() * TEXTURES.len();

/// The CSS class that gives an element a task's look.
pub(super) fn class(task: usize) -> String {
    format!("t{}", task % NUM_LOOKS)
}

/// The number of a task's texture; 0 is none.
fn texture(task: usize) -> usize {
    task / COLOURS.len() % TEXTURES.len()
}

/// The number of a task's dash. It differs from the dashes of neighbouring tasks, and of the next
/// task of the same colour.
fn dash(task: usize) -> usize {
    (task + task / COLOURS.len()) % DASHES.len()
}

/// The CSS for the looks of `num_tasks` tasks: colour, dash and texture.
pub(super) fn css(num_tasks: usize) -> String {
    let rules = (0..num_tasks.min(NUM_LOOKS)).map(|task| {
        let colour = COLOURS[task % COLOURS.len()];
        let (dash, texture) = (DASHES[dash(task)], TEXTURES[texture(task)]);
        format!(".t{task}{{--c:{colour};--d:{dash};--x:{texture}}}")
    });
    rules.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Matrix = [[f64; 3]; 3];

    /// Matrices on linear RGB that show what people see who have all cones, or who lack those for
    /// red, green or blue. From Machado, Oliveira and Fernandes, "A Physiologically-based Model for
    /// Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009, at severity 1.
    const VISIONS: [(&str, Matrix); 4] = [
        ("normal", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
        (
            "protanopia",
            [
                [0.152_286, 1.052_583, -0.204_868],
                [0.114_503, 0.786_281, 0.099_216],
                [-0.003_882, -0.048_116, 1.051_998],
            ],
        ),
        (
            "deuteranopia",
            [
                [0.367_322, 0.860_646, -0.227_968],
                [0.280_085, 0.672_501, 0.047_413],
                [-0.011_820, 0.042_940, 0.968_881],
            ],
        ),
        (
            "tritanopia",
            [
                [1.255_528, -0.076_749, -0.178_779],
                [-0.078_411, 0.930_809, 0.147_602],
                [0.004_733, 0.691_367, 0.303_900],
            ],
        ),
    ];

    fn times(matrix: &Matrix, vector: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(vector).map(|(one, other)| one * other).sum())
    }

    /// Converts `#rrggbb` to linear RGB (IEC 61966-2-1).
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        })
    }

    /// Converts linear RGB to Oklab: Björn Ottosson, "A perceptual color space for image
    /// processing", 2020.
    fn oklab(rgb: [f64; 3]) -> [f64; 3] {
        let cones = [
            [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
            [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
            [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
        ];
        let axes = [
            [0.210_454_255_3, 0.793_617_785_0, -0.004_072_046_8],
            [1.977_998_495_1, -2.428_592_205_0, 0.450_593_709_9],
            [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766_0],
        ];
        times(&axes, times(&cones, rgb.map(|value| value.clamp(0.0, 1.0))).map(f64::cbrt))
    }

    fn distance(one: &str, other: &str, vision: &Matrix) -> f64 {
        let seen = |colour| oklab(times(vision, linear(colour)));
        let squares = seen(one).into_iter().zip(seen(other)).map(|(a, b)| (a - b).powi(2));
        squares.sum::<f64>().sqrt()
    }

    /// The contrast of two colours by WCAG 2.2.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |colour| {
            let [red, green, blue] = linear(colour);
            0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05
        };
        let (one, other) = (luminance(one), luminance(other));
        one.max(other) / one.min(other)
    }

    #[test]
    fn the_measure_tells_what_the_colour_blind_confuse() {
        let distances = |one, other| VISIONS.map(|(_, vision)| distance(one, other, &vision));
        let [normal, red, green, _] = distances("#c0504d", "#7f8f3f");
        assert!(normal > 0.15 && red.min(green) < 0.06, "{normal} {red} {green}");
        let [black_white, ..] = distances("#000000", "#ffffff");
        assert!((black_white - 1.0).abs() < 1e-6);
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
    }

    /// In Oklab, a distance of about 0.02 is just noticeable side by side.
    #[test]
    fn everybody_tells_the_colours_apart() {
        for (name, vision) in &VISIONS {
            for (first, one) in COLOURS.into_iter().enumerate() {
                for (second, other) in COLOURS.into_iter().enumerate().skip(first + 1) {
                    let is_next = second == first + 1 || (first, second) == (0, COLOURS.len() - 1);
                    let least = if is_next { 0.15 } else { 0.12 };
                    let apart = distance(one, other, vision);
                    assert!(apart > least, "{one} and {other} under {name}: {apart}");
                }
            }
        }
    }

    #[test]
    fn dark_labels_read_on_every_colour() {
        for colour in COLOURS {
            assert!(contrast(colour, "#15140f") > 4.5, "{colour}");
        }
    }

    #[test]
    fn looks_differ_and_neighbours_differ_twice() {
        let look = |task: usize| (task % COLOURS.len(), texture(task), dash(task));
        let all: std::collections::BTreeSet<_> = (0..NUM_LOOKS).map(look).collect();
        assert_eq!(all.len(), NUM_LOOKS);
        for task in 0..2 * NUM_LOOKS {
            assert_ne!(look(task).0, look(task + 1).0);
            assert_ne!(dash(task), dash(task + 1), "{task}");
            assert_ne!(dash(task), dash(task + COLOURS.len()));
        }
        assert_eq!(class(NUM_LOOKS + 3), "t3");
        assert_eq!(css(10_000).matches("{--c:").count(), NUM_LOOKS);
        let script = crate::html::frame::SCRIPT;
        assert!(script.contains(&format!("NUM_COLOURS = {};", COLOURS.len())), "in draw.js");
        let (_, after) = script.split_once("TEXTURE_LINES = [").unwrap();
        let (lines, _) = after.split_once(']').unwrap();
        assert_eq!(lines.split(',').count() + 1, TEXTURES.len(), "in draw.js, and one is plain");
        assert_eq!(css(5).matches("{--c:").count(), 5);
    }
}
