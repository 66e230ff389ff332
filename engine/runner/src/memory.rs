//! How much memory this process may still use.

use std::path::{Path, PathBuf};

/// Bytes that can be had without swapping or being killed: the least of what the machine has available and of what
/// each cgroup around this process still allows. Page cache counts as available, since the kernel gives it back.
/// `None` where the system does not say.
pub fn available_bytes() -> Option<u64> {
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let folders = cgroup_folders(&membership);
    let cgroups = folders.iter().filter_map(|(folder, names)| cgroup_available(folder, names));
    cgroups.chain(machine_available()).min()
}

fn machine_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(field(&text, "MemAvailable:")? * 1024)
}

/// What the files of a memory cgroup are called.
struct Names {
    limit: &'static str,
    usage: &'static str,
    /// Page cache of it and of those below it, in its `memory.stat`.
    page_cache: [&'static str; 2],
}

/// The kernel's cgroup-v2.rst, "Memory Interface Files".
const VERSION_2: Names =
    Names { limit: "memory.max", usage: "memory.current", page_cache: ["inactive_file", "active_file"] };
/// The kernel's cgroup-v1/memory.rst.
const VERSION_1: Names = Names {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    page_cache: ["total_inactive_file", "total_active_file"],
};

/// The memory cgroups of a process and those around them, as far as they are visible; `membership` is its
/// `/proc/PID/cgroup`.
fn cgroup_folders(membership: &str) -> Vec<(PathBuf, &'static Names)> {
    let mut folders = Vec::new();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, names) = match controllers {
            "" => ("/sys/fs/cgroup", &VERSION_2),
            list if list.split(',').any(|name| name == "memory") => ("/sys/fs/cgroup/memory", &VERSION_1),
            _ => continue,
        };
        // In a container the path may be the host's, while the container's own cgroup is what is mounted at the root.
        let (root, own) = (Path::new(root), path.trim_start_matches('/'));
        let around = root.join(own).ancestors().map(Path::to_owned).collect::<Vec<_>>();
        folders.extend(
            around.into_iter().take_while(|folder| folder.starts_with(root)).map(|folder| (folder, names)),
        );
    }
    folders
}

fn cgroup_available(folder: &Path, names: &Names) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let limit: u64 = read(names.limit)?.trim().parse().ok()?;
    let used: u64 = read(names.usage)?.trim().parse().ok()?;
    let stat = read("memory.stat")?;
    let [inactive, active] = names.page_cache.map(|name| field(&stat, name));
    Some(limit.saturating_sub(used.saturating_sub(inactive? + active?)))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cgroup with a limit of 1000 bytes, 700 of them used, 300 of those by page cache.
    fn cgroup(names: &Names) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let [inactive, active] = names.page_cache;
        for (name, text) in [
            (names.limit, "1000\n".to_owned()),
            (names.usage, "700\n".to_owned()),
            ("memory.stat", format!("anon 400\n{inactive} 200\n{active} 100\n")),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_cgroup_of_either_version_leaves_its_limit_less_what_is_used_beside_page_cache() {
        for names in [&VERSION_1, &VERSION_2] {
            let folder = cgroup(names);
            assert_eq!(cgroup_available(folder.path(), names), Some(600));
        }
        let folder = cgroup(&VERSION_2);
        std::fs::write(folder.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_available(folder.path(), &VERSION_2), None);
    }

    #[test]
    fn cgroups_are_looked_for_up_to_the_root_of_their_own_version() {
        let found = |membership| {
            let folders = cgroup_folders(membership);
            folders
                .iter()
                .map(|(folder, names)| (folder.display().to_string(), names.limit))
                .collect::<Vec<_>>()
        };
        let v2 = |folder: &str| (folder.to_owned(), VERSION_2.limit);
        let v1 = |folder: &str| (folder.to_owned(), VERSION_1.limit);
        assert_eq!(found("0::/\n"), [v2("/sys/fs/cgroup/")]);
        assert_eq!(
            found("0::/pods/a\n"),
            ["/pods/a", "/pods", ""].map(|path| v2(&format!("/sys/fs/cgroup{path}")))
        );
        let wanted = ["/kubepods/b", "/kubepods", ""].map(|path| v1(&format!("/sys/fs/cgroup/memory{path}")));
        assert_eq!(found("9:name=systemd:/\n4:cpu,memory:/kubepods/b\n1:cpuset:/x\n"), wanted);
        assert_eq!(found("nonsense\n"), []);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
