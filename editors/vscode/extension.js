// Starts `linnet lsp` for Linnet files and stops it with the editor. All that is shown comes from that server.
"use strict";

const { window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate(context) {
  const [command, ...args] = workspace.getConfiguration("linnet").get("server.command");
  const watcher = workspace.createFileSystemWatcher("**/{*.linnet,linnet.toml,nest.toml}");
  context.subscriptions.push(watcher);
  client = new LanguageClient(
    "linnet",
    "Linnet",
    { command, args },
    {
      documentSelector: [{ scheme: "file", language: "linnet" }],
      synchronize: { fileEvents: watcher },
    },
  );
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(
      `The Linnet server did not start with "${[command, ...args].join(" ")}": ${error.message}. ` +
        "Install it with pip install '.[lsp]' in a checkout of Nest, or set linnet.server.command.",
    );
  }
}

function deactivate() {
  return client?.isRunning() ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
