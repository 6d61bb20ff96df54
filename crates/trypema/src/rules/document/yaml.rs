//! Parses YAML into a tree, within bounds.

use std::borrow::Cow;
use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::scalar::Scalar;
use super::tree::{Format, MappingEntry, Node, NodeId, NodeRef, Tree};
use crate::rules::problem::{FieldPath, Problems, RuleProblem};

/// The deepest nesting of values. Rules need seven levels.
pub(super) const MAX_DEPTH: usize = 32;

/// The most values in a text, at about 25 values per rule. Bounds the memory of the tree to about 200 MB.
pub(super) const MAX_VALUES: usize = 2_000_000;

/// The most fields in a mapping. A rule has a dozen, and an override a handful. Detecting duplicates takes a
/// linear search for each field.
pub(super) const MAX_FIELDS: usize = 100;

/// The longest name of a field. Errors repeat it.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// The longest text of a value: longer than any token that identifies a client.
pub(super) const MAX_TEXT_BYTES: usize = 16 * 1024;

/// The tree of a text, and the problems after which parsing continued.
pub(super) struct YamlTree<'a> {
    pub(super) tree: Tree<'a>,
    pub(super) problems: Problems,
}

/// Parses a text that contains one YAML document. The error contains all problems up to the one that ends
/// parsing.
pub(super) fn parse(text: &str) -> Result<YamlTree<'_>, Problems> {
    let mut builder = YamlTreeBuilder::default();
    for next in Parser::new_from_str(text) {
        let added = match next {
            Ok((event, span)) => builder.add(event, line_of(&span)),
            Err(error) => Err(syntax_problem(&error, text)),
        };
        if let Err(problem) = added {
            builder.problems.push(problem);
            return Err(builder.problems);
        }
    }
    let tree = Tree { nodes: builder.nodes, root: builder.root, format: Format::Yaml };
    Ok(YamlTree { tree, problems: builder.problems })
}

fn line_of(span: &Span) -> u64 {
    span.start.line() as u64
}

/// Converts a syntax error into a problem.
fn syntax_problem(error: &ScanError, text: &str) -> RuleProblem {
    let marked = (error.marker().line() as u64).max(1);
    let (line, reason) = match error.kind() {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabInPlainScalar => {
            (first_tab(text, marked).unwrap_or(marked), "a tab in the indentation: use spaces".to_owned())
        }
        ErrorKind::UnknownAnchor => (marked, "unknown alias: define its anchor (`&name`) first".to_owned()),
        ErrorKind::RecursionLimitExceeded => (marked, too_deep()),
        _ => (marked, format!("not valid YAML: {}", error.info())),
    };
    RuleProblem::new(FieldPath::default(), reason).in_line(line)
}

/// Returns the first line, from line `from` on, that is indented with a tab. The parser may report an earlier
/// line, where the text before the tab starts.
fn first_tab(text: &str, from: u64) -> Option<u64> {
    let is_tab_first = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    let lines = (1..).zip(text.lines());
    lines
        .skip_while(|(number, _)| *number < from)
        .find(|(_, line)| is_tab_first(line))
        .map(|(number, _)| number)
}

pub(super) fn too_deep() -> String {
    format!("values more than {MAX_DEPTH} levels deep")
}

/// A tree that is being built.
#[derive(Default)]
struct YamlTreeBuilder<'a> {
    nodes: Vec<Node<'a>>,
    root: Option<NodeRef>,
    open: Vec<OpenNode<'a>>,
    anchors: HashMap<usize, NodeId>,
    documents: usize,
    /// Problems after which parsing continued.
    problems: Problems,
}

/// A list or mapping whose end has not been read yet.
struct OpenNode<'a> {
    line: u64,
    anchor: usize,
    node: Node<'a>,
    /// The field that the next value belongs to.
    name: Option<FieldName<'a>>,
}

struct FieldName<'a> {
    text: Cow<'a, str>,
    line: u64,
    /// Whether the field is invalid, so that its value is left out.
    is_refused: bool,
}

impl<'a> YamlTreeBuilder<'a> {
    fn add(&mut self, event: Event<'a>, line: u64) -> Result<(), RuleProblem> {
        match event {
            Event::DocumentStart(..) => self.start_document(line),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), line);
                let is_plain = style == ScalarStyle::Plain;
                self.add_scalar(Scalar { text, is_plain }, anchor, line)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), line);
                self.start(OpenNode { line, anchor, node: Node::List(Vec::new()), name: None })
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), line);
                self.start(OpenNode { line, anchor, node: Node::Mapping(Vec::new()), name: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.add_alias(anchor, line),
            // The ends of the stream and the document, comments, and other events without a value.
            _ => Ok(()),
        }
    }

    fn start_document(&mut self, line: u64) -> Result<(), RuleProblem> {
        self.documents += 1;
        if self.documents > 1 {
            return Err(self.refusal(line, "a second YAML document begins here: need one"));
        }
        Ok(())
    }

    fn add_scalar(&mut self, scalar: Scalar<'a>, anchor: usize, line: u64) -> Result<(), RuleProblem> {
        if self.is_name_next() {
            return self.add_name(scalar, line);
        }
        let bytes = scalar.text.len();
        if bytes > MAX_TEXT_BYTES {
            return Err(self.refusal(line, format!("text of {bytes} bytes: need at most {MAX_TEXT_BYTES}")));
        }
        self.keep(Node::Scalar(scalar), anchor, line)
    }

    fn add_name(&mut self, scalar: Scalar<'a>, line: u64) -> Result<(), RuleProblem> {
        let Scalar { text, is_plain } = scalar;
        if text.len() > MAX_NAME_BYTES {
            let bytes = text.len();
            let reason = format!("a field's name of {bytes} bytes: need at most {MAX_NAME_BYTES}");
            return Err(self.refusal(line, reason));
        }
        let is_merge_key = is_plain && text == "<<";
        if is_merge_key {
            self.refuse(line, "merge keys (`<<`) are not supported: repeat the fields");
        }
        let Some(OpenNode { node: Node::Mapping(entries), name, .. }) = self.open.last_mut() else {
            return Ok(());
        };
        let (count, earlier) = (entries.len(), entries.iter().find(|entry| entry.name == text));
        let earlier = earlier.map(|entry| entry.item.line);
        *name = Some(FieldName { text, line, is_refused: is_merge_key || earlier.is_some() });
        if let Some(earlier) = earlier {
            self.refuse(line, format!("written twice, first in line {earlier}"));
        } else if count >= MAX_FIELDS {
            return Err(self.refusal(line, format!("more than {MAX_FIELDS} fields in one mapping")));
        }
        Ok(())
    }

    fn add_alias(&mut self, anchor: usize, line: u64) -> Result<(), RuleProblem> {
        if self.is_name_next() {
            return Err(self.refusal(line, "a field's name must be text, not an alias"));
        }
        match self.anchors.get(&anchor) {
            Some(node) => {
                self.attach(NodeRef { line, node: *node });
                Ok(())
            }
            None => Err(self.refusal(line, "an alias of a value that contains it, or of a field's name")),
        }
    }

    fn start(&mut self, open: OpenNode<'a>) -> Result<(), RuleProblem> {
        if self.is_name_next() {
            return Err(self.refusal(open.line, "a field's name must be text, not a list or a mapping"));
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(RuleProblem::new(FieldPath::default(), too_deep()).in_line(open.line));
        }
        self.open.push(open);
        Ok(())
    }

    fn end(&mut self) -> Result<(), RuleProblem> {
        match self.open.pop() {
            Some(OpenNode { line, anchor, node, .. }) => self.keep(node, anchor, line),
            None => Ok(()),
        }
    }

    fn keep(&mut self, node: Node<'a>, anchor: usize, line: u64) -> Result<(), RuleProblem> {
        let id = self.nodes.len();
        if id >= MAX_VALUES {
            return Err(self.refusal(line, format!("more than {MAX_VALUES} values")));
        }
        self.nodes.push(node);
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        self.attach(NodeRef { line, node: id });
        Ok(())
    }

    /// Adds a value to the innermost open list or mapping.
    fn attach(&mut self, item: NodeRef) {
        match self.open.last_mut() {
            None => self.root = Some(item),
            Some(OpenNode { node: Node::List(items), .. }) => items.push(item),
            Some(OpenNode { node: Node::Mapping(entries), name, .. }) => {
                if let Some(FieldName { text, line, is_refused: false }) = name.take() {
                    entries.push(MappingEntry { name: text, item: NodeRef { line, ..item } });
                }
            }
            Some(OpenNode { node: Node::Scalar(_), .. }) => {}
        }
    }

    fn is_name_next(&self) -> bool {
        matches!(self.open.last(), Some(OpenNode { node: Node::Mapping(_), name: None, .. }))
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, line: u64) {
        if tag.is_some() {
            self.refuse(line, "tags (`!`) are not supported: put text that begins with `!` in quotes");
        }
    }

    /// Records a problem after which parsing continues.
    fn refuse(&mut self, line: u64, reason: impl Into<String>) {
        if self.problems.is_full() {
            self.problems.count_unlisted();
            return;
        }
        let problem = self.refusal(line, reason);
        self.problems.push(problem);
    }

    fn refusal(&self, line: u64, reason: impl Into<String>) -> RuleProblem {
        RuleProblem::new(self.current_path(), reason).in_line(line)
    }

    /// Returns the path to the value that is being read.
    fn current_path(&self) -> FieldPath {
        self.open.iter().fold(FieldPath::default(), |field, open| match (&open.node, &open.name) {
            (Node::List(items), _) => field.at(items.len()),
            (_, Some(name)) => field.then(&name.text),
            (_, None) => field,
        })
    }
}
