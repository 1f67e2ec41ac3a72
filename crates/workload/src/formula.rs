// SPDX-License-Identifier: GPL-2.0-only

//! Numbers that depend on the number of CPUs: `4`, `2n`, `n/2`, `n+1`, `max(8, 4n)`, `min(4, n)`.

/// The value of a formula on a machine with `n` CPUs; `None` if `text` is not a formula.
pub fn evaluate(text: &str, n: u32) -> Option<u32> {
    let text = text.trim();
    for (name, pick) in [("max", u32::max as fn(u32, u32) -> u32), ("min", u32::min)] {
        if let Some(inside) = text.strip_prefix(name) {
            let inside = inside.trim().strip_prefix('(')?.strip_suffix(')')?;
            let (left, right) = inside.split_once(',')?;
            return Some(pick(evaluate(left, n)?, evaluate(right, n)?));
        }
    }
    if let Some((left, right)) = text.split_once('+') {
        return evaluate(left, n)?.checked_add(evaluate(right, n)?);
    }
    let (product, divisor) = match text.split_once('/') {
        Some((product, divisor)) => (product.trim(), digits(divisor.trim())?),
        None => (text, 1),
    };
    let value = match product.strip_suffix('n') {
        Some("") => n,
        Some(factor) => digits(factor.trim())?.checked_mul(n)?,
        None => digits(product)?,
    };
    value.checked_div(divisor)
}

/// Parses a number that consists of digits only.
fn digits(text: &str) -> Option<u32> {
    let only_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if only_digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    #[test]
    fn formulas_are_evaluated_and_other_text_is_refused() {
        for (text, value) in [
            ("3", 3),
            ("n", 6),
            (" 2n ", 12),
            ("n/2", 3),
            ("3n/4", 4),
            ("n+1", 7),
            ("max(8, 4n)", 24),
            ("min(4, n)", 4),
        ] {
            assert_eq!(evaluate(text, 6), Some(value), "{text}");
        }
        for text in ["", "x", "2m", "n/0", "max(1)", "max(1,2", "-1", "n n", "4294967295n"] {
            assert_eq!(evaluate(text, 6), None, "{text}");
        }
    }
}
