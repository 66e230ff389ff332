//! How much memory this process may still use.

use std::path::{Path, PathBuf};

/// Bytes that can be had without swapping or being killed: the least of what the machine has available and of what
/// each cgroup around this process still allows. Page cache counts as available, since the kernel gives it back.
/// `None` where the system does not say.
pub fn available_bytes() -> Option<u64> {
    let cgroups = cgroup_folders().into_iter().filter_map(|folder| cgroup_available(&folder));
    cgroups.chain(machine_available()).min()
}

fn machine_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(field(&text, "MemAvailable:")? * 1024)
}

/// The cgroup (version 2) of this process and those around it, as far as they are visible.
fn cgroup_folders() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    root.join(path).ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_owned).collect()
}

fn cgroup_available(folder: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat")?;
    let cached = field(&stat, "inactive_file")? + field(&stat, "active_file")?;
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_leaves_its_limit_less_what_is_used_beside_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("memory.max"), "1000\n").unwrap();
        std::fs::write(folder.path().join("memory.current"), "700\n").unwrap();
        std::fs::write(folder.path().join("memory.stat"), "anon 400\ninactive_file 200\nactive_file 100\n")
            .unwrap();
        assert_eq!(cgroup_available(folder.path()), Some(600));
        std::fs::write(folder.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_available(folder.path()), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
