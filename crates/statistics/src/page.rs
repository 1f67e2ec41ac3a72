// SPDX-License-Identifier: GPL-2.0-only

//! HTML fragments that are also well-formed XML, so that a test can parse them.

/// Escapes text for use between tags and inside quoted attributes. XML allows no control
/// characters, so each becomes U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// A table of text. A cell that starts with a verdict gets the verdict as its class, for colour.
pub fn table(caption: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut html = format!("<table><caption>{}</caption><tr>", escape(caption));
    for column in columns {
        html += &format!("<th>{}</th>", escape(column));
    }
    for row in rows {
        html += "</tr><tr>";
        for cell in row {
            let class = match cell.split(' ').next().unwrap_or_default() {
                word @ ("better" | "worse" | "met") => word,
                "MISSED" | "NOT" => "worse",
                _ => "",
            };
            html += &format!("<td class=\"{class}\">{}</td>", escape(cell));
        }
    }
    html + "</tr></table>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cell_text_leaves_the_page_well_formed() {
        let nasty = "<script>alert(\"1\")</script> & \u{0}\u{1b}\u{ffff} ]]> --> ü".to_owned();
        let html = table(&nasty, &[&nasty], &[vec![nasty.clone()]]);
        let page = roxmltree::Document::parse(&html).unwrap();
        assert!(!page.descendants().any(|node| node.has_tag_name("script")));
        let cell = page.descendants().find(|node| node.has_tag_name("td")).unwrap();
        assert!(cell.text().unwrap().starts_with("<script>alert(\"1\")</script> & \u{fffd}"));
    }
}
