//! What a profile says: the functions that took most time, and who called them.

use sample::{Function, StackProfile};
use std::collections::BTreeMap;

/// The most nested calls of a stack that is drawn. The sampler delivers at most 256.
const MAX_CALLS: usize = 300;

/// A function within its callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallNode<'a> {
    /// The function.
    pub function: &'a Function,
    /// Samples in which it ran itself, called this way.
    pub own: u64,
    /// The same with all that it called.
    pub total: u64,
    /// What it called, the longest first.
    pub calls: Vec<CallNode<'a>>,
}

/// The functions with the samples in which they ran themselves, most first.
pub fn functions(profile: &StackProfile) -> Vec<(&Function, u64)> {
    let mut functions: Vec<(&Function, u64)> = profile
        .functions
        .iter()
        .map(|function| (function, 0))
        .collect();
    for stack in &profile.stacks {
        if let Some((_, own)) = stack
            .functions
            .last()
            .and_then(|last| functions.get_mut(*last as usize))
        {
            *own = own.saturating_add(stack.samples);
        }
    }
    functions.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    functions
}

/// A node while the tree grows: by the number of the function.
#[derive(Default)]
struct Growing {
    own: u64,
    total: u64,
    calls: BTreeMap<u32, Growing>,
}

impl Growing {
    fn add(&mut self, functions: &[u32], samples: u64) {
        let mut node = self;
        node.total = node.total.saturating_add(samples);
        for function in functions {
            node = node.calls.entry(*function).or_default();
            node.total = node.total.saturating_add(samples);
        }
        node.own = node.own.saturating_add(samples);
    }

    fn calls(self, profile: &StackProfile) -> Vec<CallNode<'_>> {
        let nodes = self.calls.into_iter().filter_map(|(number, node)| {
            let function = profile.functions.get(number as usize)?;
            Some(CallNode {
                function,
                own: node.own,
                total: node.total,
                calls: node.calls(profile),
            })
        });
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_by(|a, b| {
            b.total
                .cmp(&a.total)
                .then_with(|| a.function.cmp(b.function))
        });
        nodes
    }
}

/// The outermost callers with all that they called.
pub fn call_tree(profile: &StackProfile) -> Vec<CallNode<'_>> {
    let mut root = Growing::default();
    for stack in &profile.stacks {
        root.add(
            &stack.functions[..stack.functions.len().min(MAX_CALLS)],
            stack.samples,
        );
    }
    root.calls(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::StackCount;
    use testkit::profile;

    #[test]
    fn functions_by_their_own_time() {
        let profile = profile();
        let times = functions(&profile);
        let named: Vec<_> = times
            .iter()
            .map(|(function, own)| (function.name.as_str(), *own))
            .collect();
        assert_eq!(
            named[..4],
            [
                ("ppoll", 180),
                ("rtc_update_timer", 90),
                ("[guest]", 80),
                ("main_loop_wait", 20)
            ]
        );
    }

    fn adds_up(node: &CallNode<'_>) {
        let called: u64 = node.calls.iter().map(|call| call.total).sum();
        assert_eq!(node.own + called, node.total);
        node.calls.iter().for_each(adds_up);
    }

    #[test]
    fn a_tree_adds_up() {
        let profile = profile();
        let tree = call_tree(&profile);
        let total: u64 = tree.iter().map(|node| node.total).sum();
        assert_eq!(total, profile.samples_of(None));
        let [main, vcpu] = &tree[..] else {
            panic!("{tree:?}")
        };
        assert_eq!((main.total, main.own, vcpu.total), (300, 0, 80));
        assert_eq!(main.calls[0].calls[0].function.name, "ppoll");
        tree.iter().for_each(adds_up);
    }

    #[test]
    fn numbers_without_a_function_are_left_out() {
        let mut profile = profile();
        profile.stacks.push(StackCount {
            tid: 100,
            functions: vec![99],
            samples: u64::MAX,
        });
        assert_eq!(functions(&profile).len(), 7);
        assert_eq!(call_tree(&profile).len(), 2);
    }
}
