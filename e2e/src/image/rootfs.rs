//! The files of an image, as one layer.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use tar::{Builder, EntryType, Header};

/// The user that images run as, without any right on files of others.
pub(super) const USER: u64 = 65532;
const AUTHORITIES: &str = "etc/ssl/certs/ca-certificates.crt";

enum Entry {
    Dir { mode: u32 },
    File { mode: u32, bytes: Vec<u8> },
}

/// Paths without a leading slash; sorted, so that equal inputs give equal layers.
pub(super) struct Rootfs {
    entries: BTreeMap<String, Entry>,
}

impl Rootfs {
    /// A world-writable `/tmp`, the user, and the certificate authorities of this host where it has any.
    pub(super) fn base() -> Self {
        let mut rootfs = Self { entries: BTreeMap::new() };
        rootfs.entries.insert("tmp".into(), Entry::Dir { mode: 0o1777 });
        let passwd =
            format!("root:x:0:0:root:/root:/sbin/nologin\nregatta:x:{USER}:{USER}::/tmp:/sbin/nologin\n");
        rootfs.add("etc/passwd", 0o644, passwd.into_bytes());
        rootfs.add("etc/group", 0o644, format!("root:x:0:\nregatta:x:{USER}:\n").into_bytes());
        if let Ok(authorities) = fs::read(Path::new("/").join(AUTHORITIES)) {
            rootfs.add(AUTHORITIES, 0o644, authorities);
        }
        rootfs
    }

    /// Adds `binary` as `path`, and the shared libraries it needs under the paths where the loader found them.
    pub(super) fn add_program(&mut self, binary: &Path, path: &str) -> Result<()> {
        self.add(path, 0o755, stripped(binary)?);
        for library in shared_libraries(binary)? {
            let bytes = fs::read(&library).with_context(|| format!("cannot read {library}"))?;
            self.add(library.trim_start_matches('/'), 0o755, bytes);
        }
        Ok(())
    }

    fn add(&mut self, path: &str, mode: u32, bytes: Vec<u8>) {
        let parents = path.match_indices('/').map(|(end, _)| path[..end].to_owned());
        for parent in parents {
            self.entries.entry(parent).or_insert(Entry::Dir { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), Entry::File { mode, bytes });
    }

    pub(super) fn into_tar(self) -> Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (path, entry) in self.entries {
            let mut header = Header::new_gnu();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            let bytes = match entry {
                Entry::Dir { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(mode);
                    Vec::new()
                }
                Entry::File { mode, bytes } => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_mode(mode);
                    bytes
                }
            };
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, &path, bytes.as_slice())
                .with_context(|| format!("cannot pack {path}"))?;
        }
        tar.into_inner().context("cannot finish a layer")
    }
}

/// The program without debug information, which is most of its size.
fn stripped(binary: &Path) -> Result<Vec<u8>> {
    if !binary.is_file() {
        bail!("{} does not exist: build it first", binary.display());
    }
    let small = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let output = Command::new("objcopy")
        .arg("--strip-debug")
        .args([binary, small.path()])
        .output()
        .context("objcopy cannot be run: apt-get install binutils")?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        bail!("objcopy cannot read {}: {}", binary.display(), message.trim());
    }
    fs::read(small.path()).context("cannot read what objcopy wrote")
}

/// Absolute paths of what the dynamic loader would load, itself included; none for a static program.
fn shared_libraries(binary: &Path) -> Result<Vec<String>> {
    let output =
        Command::new("ldd").arg(binary).output().context("ldd cannot be run: apt-get install libc-bin")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        // ldd fails on a static program, and says so in one of two ways.
        let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        if all.contains("not a dynamic executable") || all.contains("statically linked") {
            return Ok(Vec::new());
        }
        bail!("ldd cannot read {}: {}", binary.display(), all.trim());
    }
    parse_ldd(&text).with_context(|| format!("in what {} needs", binary.display()))
}

/// Lines are `name => /path (0x..)`, `/path (0x..)`, `linux-vdso.so.1 (0x..)` or `name => not found`.
fn parse_ldd(text: &str) -> Result<Vec<String>> {
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.ends_with("=> not found") {
            bail!("a shared library is missing on this machine: {line}");
        }
        let target = line.split("=>").last().unwrap_or_default().trim();
        if target.starts_with('/') {
            libraries.extend(target.split(' ').next().map(String::from));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_the_loader_are_found_and_the_vdso_is_not() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            parse_ldd(text).unwrap(),
            ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]
        );
        assert_eq!(parse_ldd("\tstatically linked\n").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse_ldd("\tlibfoo.so => not found\n").unwrap_err();
        assert!(error.to_string().contains("libfoo.so"), "{error}");
    }

    #[test]
    fn every_file_of_a_layer_comes_after_its_folder() {
        let mut rootfs = Rootfs::base();
        rootfs.add("usr/local/bin/x", 0o755, b"x".to_vec());
        let bytes = rootfs.into_tar().unwrap();
        let mut seen = Vec::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let path = entry.unwrap().path().unwrap().into_owned();
            let parent = path.parent().unwrap().to_owned();
            assert!(parent.as_os_str().is_empty() || seen.contains(&parent), "{}", path.display());
            seen.push(path);
        }
        assert!(seen.contains(&"usr/local/bin/x".into()));
    }
}
