"use strict";
// A button that copies the snippet; without a clipboard there is no button.
if (navigator.clipboard) {
  for (const figure of document.querySelectorAll(".snippet")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(figure.querySelector("code").textContent);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not copied";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    figure.append(button);
  }
}
