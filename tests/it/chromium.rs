//! A headless Chromium, driven by its debugging protocol over its pipe (`--remote-debugging-pipe`):
//! messages of JSON, each ended by a zero byte
//! (<https://chromedevtools.github.io/devtools-protocol/>).

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Programs that are a headless Chromium, the smallest first.
const PROGRAMS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];

/// A page in its own browser, which ends with the page.
pub struct Tab {
    browser: Child,
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    last_id: u64,
    /// What the browser reported on its own: exceptions, console messages, requests, dialogs.
    pub events: Vec<Value>,
}

/// Why no browser can run here.
pub fn missing() -> Option<String> {
    program()
        .is_none()
        .then(|| format!("none of these is installed: {}", PROGRAMS.join(", ")))
}

fn program() -> Option<&'static str> {
    let path = std::env::var_os("PATH")?;
    PROGRAMS
        .into_iter()
        .find(|name| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

impl Tab {
    /// Starts a browser with a window of this size; its files go to the folder.
    pub fn open(folder: &Path, width: u32, height: u32) -> Self {
        let pipes = ["to", "from"].map(|name| {
            let path = folder.join(name);
            mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
            path
        });
        // The shell opens the pipes as the descriptors that Chromium expects. It waits for the
        // other ends below.
        let browser = Command::new("sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\"",
                program().expect("a browser"),
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--no-first-run",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.join("profile").display()
            ))
            .env("TO", &pipes[0])
            .env("FROM", &pipes[1])
            .env("HOME", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh");
        let to = OpenOptions::new()
            .write(true)
            .open(&pipes[0])
            .expect("a pipe");
        let from = BufReader::new(File::open(&pipes[1]).expect("a pipe"));
        let mut tab = Self {
            browser,
            to,
            from,
            session: None,
            last_id: 0,
            events: Vec::new(),
        };
        let target =
            tab.call("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let session = tab.call(
            "Target.attachToTarget",
            &json!({ "targetId": target, "flatten": true }),
        );
        tab.session = session["sessionId"].as_str().map(ToString::to_string);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), &json!({}));
        }
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        tab.call("Emulation.setDeviceMetricsOverride", &size);
        tab
    }

    /// Calls a method of the protocol and returns its result.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser reads");
        loop {
            let mut answer = self.next_message();
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn next_message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from
            .read_until(0, &mut bytes)
            .expect("the browser answers");
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// Opens an address and waits until it is loaded.
    pub fn go(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", &json!({ "url": url }));
        while !self
            .events
            .iter()
            .any(|e| e["method"] == "Page.loadEventFired")
        {
            let event = self.next_message();
            self.events.push(event);
        }
    }

    /// The value of an expression in the page; a promise is waited for.
    pub fn eval(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", &parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].take()
    }

    /// Presses the left button at one place and releases it at another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let places = [
            ("mouseMoved", from, 0),
            ("mousePressed", from, 1),
            ("mouseMoved", to, 1),
            ("mouseReleased", to, 0),
        ];
        for (kind, (x, y), buttons) in places {
            let button = if kind == "mouseMoved" { "none" } else { "left" };
            let event = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons, "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call(
                "Input.dispatchKeyEvent",
                &json!({ "type": kind, "key": key }),
            );
        }
    }

    /// Everything that must not happen: exceptions, messages on the console, dialogs, and requests
    /// for anything but this address.
    pub fn complaints(&self, url: &str) -> Vec<String> {
        let is_bad = |e: &&Value| match e["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown"
            | "Runtime.consoleAPICalled"
            | "Log.entryAdded"
            | "Page.javascriptDialogOpening" => true,
            "Network.requestWillBeSent" => e["params"]["request"]["url"] != url,
            _ => false,
        };
        self.events
            .iter()
            .filter(is_bad)
            .map(ToString::to_string)
            .collect()
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
