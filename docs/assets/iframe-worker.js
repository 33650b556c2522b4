// Search works when the site is opened as files: browsers start no workers there, so the worker's script runs
// in a hidden frame instead, with the part of a worker's interface that the search needs.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.loaded = new Promise((resolve, reject) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow
          inside.importScripts = (...urls) =>
            urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve())
          inside.postMessage = data => {
            const event = new MessageEvent("message", { data })
            this.dispatchEvent(event)
            if (this.onmessage) this.onmessage(event)
          }
          this.load(url).then(resolve, reject)
        }
      })
      this.frame.srcdoc = "<!doctype html><body></body>"
      document.body.append(this.frame)
    }

    load(url) {
      const inside = this.frame.contentDocument
      return new Promise((resolve, reject) => {
        const script = inside.createElement("script")
        script.src = new URL(url, location.href)
        script.onload = resolve
        script.onerror = reject
        inside.body.append(script)
      })
    }

    postMessage(data) {
      this.loaded.then(() => {
        const inside = this.frame.contentWindow
        inside.dispatchEvent(new MessageEvent("message", { data }))
      })
    }

    terminate() {
      this.frame.remove()
    }
  }
}
