//! How the layers of a model share the blocks of one KV pool.

use regatta_core::kv::{KvGroup, KvGroups};

use crate::backend::KvLayer;

/// Groups of layers with the same window, all of the same number of layers, so that a block serves any of them. Where
/// numbers do not divide, some places in blocks stay empty.
#[derive(Clone, Debug, PartialEq)]
pub struct KvLayout {
    /// What each group keeps.
    pub groups: KvGroups,
    /// Where each layer of the model is.
    pub layers: Vec<KvLayer>,
    /// Layers in a group.
    pub layers_per_group: usize,
}

impl KvLayout {
    /// A layout for layers with these windows (absent: full attention); at least one layer, at most eight kinds.
    ///
    /// # Errors
    /// There are more kinds of windows than a cache has groups.
    pub fn new(windows: &[Option<u32>]) -> Result<Self, String> {
        let mut kinds: Vec<(Option<u32>, usize)> = Vec::new();
        for &window in windows {
            match kinds.iter_mut().find(|(kind, _)| *kind == window) {
                Some((_, count)) => *count += 1,
                None => kinds.push((window, 1)),
            }
        }
        let num_groups = |size: usize| kinds.iter().map(|(_, count)| count.div_ceil(size)).sum::<usize>();
        let kv_groups = |size: usize| {
            let all = kinds
                .iter()
                .flat_map(|&(window, count)| std::iter::repeat_n(group(window), count.div_ceil(size)));
            KvGroups::new(&all.collect::<Vec<_>>())
        };
        // Where several sizes leave the same number of places empty, fewer groups are less to keep track of.
        let sizes = (1..=windows.len()).rev().filter_map(|size| Some((size, kv_groups(size).ok()?)));
        let best = sizes.min_by_key(|&(size, _)| num_groups(size) * size);
        let Some((layers_per_group, groups)) = best else {
            return Err(format!(
                "its layers have {} kinds of attention windows; at most 8 can be held",
                kinds.len()
            ));
        };
        let mut layers = Vec::with_capacity(windows.len());
        for (index, &window) in windows.iter().enumerate() {
            let earlier_kinds = kinds.iter().take_while(|(kind, _)| *kind != window);
            let first: usize = earlier_kinds.map(|(_, count)| count.div_ceil(layers_per_group)).sum();
            let place = windows[..index].iter().filter(|other| **other == window).count();
            layers.push(KvLayer {
                group: first + place / layers_per_group,
                index: place % layers_per_group,
                window: window.map(|window| window as usize),
            });
        }
        Ok(Self { groups, layers, layers_per_group })
    }
}

fn group(window: Option<u32>) -> KvGroup {
    window.map_or(KvGroup::Full, |window| KvGroup::SlidingWindow { window })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(windows: impl IntoIterator<Item = Option<u32>>) -> KvLayout {
        KvLayout::new(&windows.into_iter().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn layers_of_one_kind_are_one_group() {
        let layout = layout([None; 30]);
        assert_eq!((layout.groups, layout.layers_per_group), (KvGroups::FULL, 30));
        assert_eq!(layout.layers[7], KvLayer::full(7));
    }

    #[test]
    fn one_full_layer_in_six_makes_six_groups_of_one_size() {
        let layout = layout((0..24).map(|layer| (layer % 6 != 5).then_some(1024)));
        assert_eq!((layout.groups.as_slice().len(), layout.layers_per_group), (6, 4));
        assert_eq!(layout.layers[5], KvLayer { group: 5, index: 0, window: None });
        assert_eq!(layout.layers[6], KvLayer { group: 1, index: 1, window: Some(1024) });
        let mut places: Vec<_> = layout.layers.iter().map(|layer| (layer.group, layer.index)).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 24);
    }

    #[test]
    fn a_rare_kind_leaves_places_empty_rather_than_making_many_groups() {
        let layout = layout((0..48).map(|layer| (layer > 0).then_some(64)));
        assert!(layout.groups.as_slice().len() <= 8);
        assert!(layout.layers_per_group * layout.groups.as_slice().len() < 48 + 16);
        assert!(KvLayout::new(&(0..9).map(Some).map(|w| w.map(|w| w + 1)).collect::<Vec<_>>()).is_err());
    }
}
