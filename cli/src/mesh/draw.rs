// SPDX-License-Identifier: GPL-2.0

//! A mesh as a picture: for Graphviz, and as SVG that needs no other program.
//!
//! Owns what is drawn where. What a mesh is made of it is told as names and numbers; it asks the
//! module nothing. The same mesh always gives the same picture.

use std::fmt::Write as _;

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    /// Where its buffers lie: `PMR`, `CMB`, `host`.
    pub(super) memory: &'static str,
    pub(super) lost: bool,
}

/// A way from one member to another.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// Places in the list of nodes.
    pub(super) from: usize,
    pub(super) to: usize,
    /// The buffer that carries it; several edges may have the same one.
    pub(super) buffer: u32,
    /// Whether others use that buffer too.
    pub(super) shared: bool,
    /// `64 x 64 B in csd1 PMR`
    pub(super) what: String,
    pub(super) messages: u64,
    /// It carries nothing any more.
    pub(super) broken: bool,
}

/// A mesh.
#[derive(Clone, Debug)]
pub(super) struct Drawing {
    pub(super) name: String,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
}

impl Drawing {
    /// The shared buffers, in the order in which they are met first, each with what it is.
    fn buffers(&self) -> Vec<(u32, &str)> {
        let mut buffers: Vec<(u32, &str)> = Vec::new();
        for edge in self.edges.iter().filter(|edge| edge.shared) {
            if buffers.iter().all(|(id, _)| *id != edge.buffer) {
                buffers.push((edge.buffer, &edge.what));
            }
        }
        buffers
    }

    /// For each shared buffer who writes to it and who reads it, each once.
    fn users(&self, buffer: u32) -> (Vec<usize>, Vec<usize>) {
        let mut writers = Vec::new();
        let mut readers = Vec::new();
        let edges = self.edges.iter();
        for edge in edges.filter(|edge| edge.shared && edge.buffer == buffer) {
            if !writers.contains(&edge.from) {
                writers.push(edge.from);
            }
            if !readers.contains(&edge.to) {
                readers.push(edge.to);
            }
        }
        (writers, readers)
    }

    /// In the language of Graphviz.
    pub(super) fn dot(&self) -> String {
        let mut text = format!("digraph {} {{\n", quoted(&self.name));
        text.push_str("\tlayout=circo;\n\tnode [shape=box, style=rounded];\n");
        for node in &self.nodes {
            let style = if node.lost {
                ", style=\"rounded,dashed\""
            } else {
                ""
            };
            let label = quoted(&format!("{}\n{}", node.name, node.memory));
            let _ = writeln!(text, "\t{} [label={label}{style}];", quoted(&node.name));
        }
        for edge in self.edges.iter().filter(|edge| !edge.shared) {
            let style = if edge.broken { ", style=dashed" } else { "" };
            let _ = writeln!(
                text,
                "\t{} -> {} [label={}, tooltip={}{style}];",
                quoted(&self.nodes[edge.from].name),
                quoted(&self.nodes[edge.to].name),
                quoted(&edge.messages.to_string()),
                quoted(&edge.what)
            );
        }
        for (buffer, what) in self.buffers() {
            let name = quoted(&format!("buffer {buffer}"));
            let label = quoted(&format!("buffer {buffer}\n{what}"));
            let _ = writeln!(text, "\t{name} [shape=cylinder, label={label}];");
            let (writers, readers) = self.users(buffer);
            for writer in writers {
                let _ = writeln!(text, "\t{} -> {name};", quoted(&self.nodes[writer].name));
            }
            for reader in readers {
                let _ = writeln!(text, "\t{name} -> {};", quoted(&self.nodes[reader].name));
            }
        }
        text.push_str("}\n");
        text
    }

    /// As SVG: members on a circle, rings as arrows between them, shared buffers inside.
    pub(super) fn svg(&self) -> String {
        let count = self.nodes.len().max(1);
        let radius = (count as f64 * 24.0).max(160.0);
        let size = 2.0 * (radius + 80.0);
        let middle = size / 2.0;
        let on_circle = |index: usize, of: usize, radius: f64| {
            let angle = std::f64::consts::TAU * index as f64 / of.max(1) as f64;
            (middle + radius * angle.sin(), middle - radius * angle.cos())
        };
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{size:.0}\" height=\"{size:.0}\" \
             viewBox=\"0 0 {size:.0} {size:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>{}</title>\n{STYLE}",
            escaped(&self.name)
        );
        let place = |index: usize| on_circle(index, count, radius);
        for edge in self.edges.iter().filter(|edge| !edge.shared) {
            let class = if edge.broken { "ring broken" } else { "ring" };
            let title = format!(
                "{} to {}: {}, {} messages",
                self.nodes[edge.from].name, self.nodes[edge.to].name, edge.what, edge.messages
            );
            let arrow = Arrow::between(place(edge.from), place(edge.to), true);
            arrow.draw(&mut text, class, &title);
        }
        let buffers = self.buffers();
        for (index, (buffer, what)) in buffers.iter().enumerate() {
            let at = match buffers.len() {
                1 => (middle, middle),
                many => on_circle(index, many, radius * 0.45),
            };
            let (writers, readers) = self.users(*buffer);
            for writer in writers {
                let title = format!("{} writes to buffer {buffer}", self.nodes[writer].name);
                Arrow::between(place(writer), at, false).draw(&mut text, "ring", &title);
            }
            for reader in readers {
                let title = format!("{} reads buffer {buffer}", self.nodes[reader].name);
                Arrow::between(at, place(reader), true).draw(&mut text, "ring", &title);
            }
            boxed(
                &mut text,
                at,
                "buffer",
                &[&format!("buffer {buffer}")],
                what,
            );
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let class = if node.lost { "member lost" } else { "member" };
            let title = if node.lost { "lost" } else { "attached" };
            boxed(
                &mut text,
                place(index),
                class,
                &[&node.name, node.memory],
                title,
            );
        }
        text.push_str("</svg>\n");
        text
    }
}

const STYLE: &str = "\
<style>
.member{fill:#eef4ff;stroke:#2b4a7f}.lost{fill:#f4f4f4;stroke-dasharray:4 3}
.buffer{fill:#fff6e0;stroke:#8a6a1f}
.ring{fill:none;stroke:#667;stroke-width:1}.broken{stroke-dasharray:4 3;stroke:#b33}
text{text-anchor:middle}
</style>
<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#667\"/></marker></defs>
";

/// Half of the width and of the height of a member's box.
const HALF: (f64, f64) = (34.0, 18.0);

/// A line from the edge of one box to that of another, bent so that the way back lies beside it.
struct Arrow {
    from: (f64, f64),
    by: (f64, f64),
    to: (f64, f64),
}

impl Arrow {
    fn between(from: (f64, f64), to: (f64, f64), bent: bool) -> Self {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx.hypot(dy).max(1.0);
        let bend = if bent { (length * 0.1).min(24.0) } else { 0.0 };
        let by = (
            (from.0 + to.0) / 2.0 - dy / length * bend,
            (from.1 + to.1) / 2.0 + dx / length * bend,
        );
        Self {
            from: edge_of(from, by),
            by,
            to: edge_of(to, by),
        }
    }

    fn draw(&self, text: &mut String, class: &str, title: &str) {
        let Self { from, by, to } = self;
        let _ = writeln!(
            text,
            "<path class=\"{class}\" d=\"M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}\" \
             marker-end=\"url(#head)\"><title>{}</title></path>",
            from.0,
            from.1,
            by.0,
            by.1,
            to.0,
            to.1,
            escaped(title)
        );
    }
}

/// Where the line from the middle of a box towards `other` leaves it.
fn edge_of(middle: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (other.0 - middle.0, other.1 - middle.1);
    let across = (dx.abs() / HALF.0).max(dy.abs() / HALF.1);
    if across <= 1.0 {
        return middle;
    }
    (middle.0 + dx / across, middle.1 + dy / across)
}

fn boxed(text: &mut String, at: (f64, f64), class: &str, lines: &[&str], title: &str) {
    let _ = write!(
        text,
        "<g><title>{}</title><rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.0}\" \
         height=\"{:.0}\" rx=\"5\"/>",
        escaped(title),
        at.0 - HALF.0,
        at.1 - HALF.1,
        2.0 * HALF.0,
        2.0 * HALF.1
    );
    let first = at.1 + 4.0 - 7.0 * (lines.len() as f64 - 1.0);
    for (index, line) in lines.iter().enumerate() {
        let _ = write!(
            text,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            at.0,
            first + 14.0 * index as f64,
            escaped(line)
        );
    }
    text.push_str("</g>\n");
}

/// A string of Graphviz.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}

/// Text in XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(shared: bool) -> Drawing {
        let node = |name: &str| Node {
            name: name.into(),
            memory: "PMR",
            lost: name == "csd1",
        };
        let mut edges = Vec::new();
        for from in 0..3 {
            for to in (0..3).filter(|to| *to != from) {
                edges.push(Edge {
                    from,
                    to,
                    buffer: if shared { 0 } else { (3 * from + to) as u32 },
                    shared,
                    what: "64 x 64 B in \"csd\" <PMR>".into(),
                    messages: 7,
                    broken: from == 1 || to == 1,
                });
            }
        }
        Drawing {
            name: "mesh0".into(),
            nodes: vec![node("host"), node("csd0"), node("csd1")],
            edges,
        }
    }

    /// Names of elements that are opened and not closed, by a reading of the text as XML that
    /// knows tags and attributes only.
    fn unclosed(xml: &str) -> Vec<String> {
        let mut open = Vec::new();
        let mut rest = xml;
        while let Some(start) = rest.find('<') {
            let end = start + rest[start..].find('>').unwrap();
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(tag.split(' ').next().unwrap().to_string());
            }
        }
        open
    }

    #[test]
    fn each_ring_is_an_arrow_and_each_member_a_box() {
        let drawing = drawing(false);
        let (dot, svg) = (drawing.dot(), drawing.svg());
        assert_eq!(dot.matches(" -> ").count(), 6);
        assert_eq!(svg.matches("<path class=\"ring").count(), 6);
        assert_eq!(svg.matches("<rect class=\"member").count(), 3);
        assert_eq!(svg.matches("ring broken").count(), 4);
        assert_eq!(unclosed(&svg), Vec::<String>::new());
    }

    #[test]
    fn a_shared_buffer_is_drawn_once_with_one_arrow_for_each_of_its_users() {
        let drawing = drawing(true);
        let (dot, svg) = (drawing.dot(), drawing.svg());
        assert_eq!(dot.matches("shape=cylinder").count(), 1);
        assert_eq!(dot.matches(" -> ").count(), 6);
        assert_eq!(svg.matches("<rect class=\"buffer").count(), 1);
        assert_eq!(svg.matches("<path class=\"ring").count(), 6);
        assert_eq!(unclosed(&svg), Vec::<String>::new());
    }

    #[test]
    fn names_cannot_break_out_of_their_quotes() {
        assert_eq!(quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
        assert_eq!(escaped("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
