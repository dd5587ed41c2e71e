//! Durations and times as people write them.

use std::time::Duration;

/// Reads `500ms`, `30s`, `5m`, `2h` or `7d`; bare seconds too.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a duration is written as 500ms, 30s, 5m, 2h or 7d".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds_each = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds_each).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "m", "1w", "-1s", "1.5h", "99999999999999999999d", "9999999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
