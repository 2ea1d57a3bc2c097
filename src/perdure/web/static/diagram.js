// Draws one diagram in a frame of its own, for the page that holds the frame.

const tell = (news) => parent.postMessage(news, '*');

addEventListener('message', async ({ source, data }) => {
  if (source !== parent || typeof data?.code !== 'string') return;
  try {
    window.mermaid.initialize({ startOnLoad: false, securityLevel: 'strict', theme: data.isDark ? 'dark' : 'neutral', maxTextSize: 50000 });
    const { svg } = await window.mermaid.render('drawn', data.code);
    const holder = document.getElementById('diagram');
    holder.innerHTML = svg;
    tell({ height: Math.ceil(holder.getBoundingClientRect().height) + 28 });
  } catch (error) {
    tell({ problem: String(error.message ?? error) });
  }
});

tell({ isReady: true });
