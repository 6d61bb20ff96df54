//! Scripts, and the commands that run them.

use std::sync::Arc;

use ::redis::Cmd;

/// A script, identified by its SHA-1 digest.
#[derive(Debug)]
pub(crate) struct Script {
    source: String,
    digest: String,
}

impl Script {
    pub(crate) fn new(source: String) -> Self {
        let digest = ::redis::Script::new(&source).get_hash().to_owned();
        Self { source, digest }
    }
}

/// One run of a script. On a Cluster all keys must be in one slot.
#[derive(Debug)]
pub(crate) struct ScriptCall {
    pub(crate) script: Arc<Script>,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) arguments: Vec<Vec<u8>>,
}

impl ScriptCall {
    /// Returns the command that runs the script if the server has it cached.
    pub(super) fn by_digest(&self) -> Cmd {
        self.command("EVALSHA", &self.script.digest)
    }

    /// Returns the command that runs the script and makes the server cache it. Unlike `SCRIPT LOAD`, it
    /// needs no further permission.
    pub(super) fn by_source(&self) -> Cmd {
        self.command("EVAL", &self.script.source)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let values = self.keys.iter().chain(&self.arguments);
        let bytes: usize = values.clone().map(Vec::len).sum();
        let mut command =
            Cmd::with_capacity(3 + self.keys.len() + self.arguments.len(), 64 + script.len() + bytes);
        command.arg(name).arg(script).arg(self.keys.len());
        values.for_each(|value| {
            command.arg(value.as_slice());
        });
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_the_digest_then_the_keys_then_the_arguments() {
        let call = ScriptCall {
            script: Arc::new(Script::new("return 1".into())),
            keys: vec![b"k".to_vec()],
            arguments: vec![b"".to_vec(), b"\r\n".to_vec()],
        };
        let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let expected = format!(
            "*6\r\n$7\r\nEVALSHA\r\n$40\r\n{digest}\r\n$1\r\n1\r\n$1\r\nk\r\n$0\r\n\r\n$2\r\n\r\n\r\n"
        );
        assert_eq!(call.by_digest().get_packed_command(), expected.as_bytes());
        assert!(call.by_source().get_packed_command().starts_with(b"*6\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n"));
    }
}
