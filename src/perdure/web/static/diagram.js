// Draws one diagram in a frame of its own, for the page that holds the frame.

const tell = (news) => parent.postMessage(news, '*');

// Where there is less room it is drawn smaller.
const sizes = new ResizeObserver(([{ contentRect }]) => tell({ height: Math.ceil(contentRect.height) + 28 }));

addEventListener('message', async ({ source, data }) => {
  if (source !== parent || typeof data?.code !== 'string') return;
  try {
    window.mermaid.initialize({ startOnLoad: false, securityLevel: 'strict', theme: data.isDark ? 'dark' : 'neutral', maxTextSize: 50000 });
    const { svg } = await window.mermaid.render('drawn', data.code);
    const holder = document.getElementById('diagram');
    holder.innerHTML = svg;
    sizes.observe(holder);
  } catch (error) {
    tell({ problem: String(error.message ?? error) });
  }
});

tell({ isReady: true });
