// Of the notebook in front: is its kernel idle, has every cell run (or one failed), the errors, how many cells ran.
() => {
  const widget = window.jupyterapp && window.jupyterapp.shell.currentWidget;
  const session = widget && widget.context && widget.context.sessionContext;
  const kernel = session && session.isReady && session.session && session.session.kernel;
  const model = widget && widget.content && widget.content.model;
  const cells = model && model.cells ? [...model.cells].filter(c => c.type === 'code') : [];
  const errors = cells.flatMap(c => c.outputs.toJSON()).filter(o => o.output_type === 'error');
  return {
    ready: !!(kernel && kernel.status === 'idle'),
    done: errors.length > 0 || cells.every(c => c.executionCount !== null && c.executionState !== 'running'),
    errors: errors.map(o => o.ename + ': ' + o.evalue),
    ran: cells.filter(c => c.executionCount !== null).length,
  };
}
